// How NCCL groups come to be: over another communicator, from one of the program's, from one of ours.
#include <fmt/format.h>

#include <numeric>
#include <utility>

#include "collectives/exchange.hpp"
#include "collectives/nccl/nccl_api.hpp"
#include "collectives/nccl/nccl_backend.hpp"
#include "collectives/nccl/nccl_communicator.hpp"
#include "core/cuda/cuda_device.hpp"

namespace amaxscope {

namespace {

constexpr CollectiveTag kSetUp = {.traffic = Traffic::kTrainer, .what = "making an NCCL communicator"};

/// Throws on every rank when some rank has a problem: "rank 1: no driver; rank 3: ...".
void require_all_fine(Communicator& bootstrap, const std::string& own_problem, ErrorCode code,
                      std::string_view what) {
  const std::vector<std::string> problems = all_gather_text(bootstrap, own_problem, kSetUp);
  std::string message;
  for (std::size_t rank = 0; rank < problems.size(); ++rank) {
    if (problems[rank].empty()) continue;
    message += fmt::format("{}rank {}: {}", message.empty() ? "" : "; ", bootstrap.world_ranks()[rank],
                           problems[rank]);
  }
  AMAXSCOPE_CHECK(message.empty(), code, "{}: {}", what, message);
}

/// Rank 0's identifier on every rank.
ncclUniqueId share_unique_id(Communicator& bootstrap) {
  ncclUniqueId id{};
  std::string problem;
  if (bootstrap.rank() == 0) {
    const ncclResult_t result = ncclGetUniqueId(&id);
    if (result != ncclSuccess) problem = NcclError(result, "ncclGetUniqueId").what();
  }
  require_all_fine(bootstrap, problem, ErrorCode::kInternal, "NCCL gives no identifier");
  bootstrap.broadcast(
      MutableTensorView(id.internal, DType::kU8, {static_cast<std::int64_t>(sizeof id.internal)}), 0, kSetUp);
  // A broadcast may need this rank's help to get to the others, which it does not give from within NCCL.
  bootstrap.barrier(kSetUp);
  return id;
}

}  // namespace

/// negative color.
std::shared_ptr<NcclGroup> split_comm(ncclComm_t parent, int color, int key, int device,
                                      const NcclGroup::Limits& limits,
                                      const std::function<void()>& wait_for_parent) {
  const CudaDeviceScope scope(device);
  ncclConfig_t config = nccl_config();
  ncclComm_t child = nullptr;
  check_nccl(ncclCommSplit(parent, color < 0 ? NCCL_SPLIT_NOCOLOR : color, key, &child, &config),
             "ncclCommSplit");
  // The new one is there when the old one is no longer in progress, and not earlier.
  wait_for_parent();
  if (color < 0) return nullptr;
  AMAXSCOPE_CHECK(child != nullptr, ErrorCode::kInternal, "ncclCommSplit gave no communicator for color {}",
                  color);
  auto group = std::make_shared<NcclGroup>(child, device, limits);
  group->wait_ready("ncclCommSplit");
  return group;
}

std::string why_no_nccl(int device) {
  const CudaPresence presence = cuda_presence();
  if (presence.devices == 0) return fmt::format("no CUDA device: {}", presence.why_none);
  if (device < 0 || device >= presence.devices) {
    return fmt::format("no CUDA device {}; there are {}, counted from 0", device, presence.devices);
  }
  return nccl_version_problem();
}

std::unique_ptr<Communicator> make_nccl_communicator(Communicator& bootstrap, const NcclOptions& options) {
  require_all_fine(bootstrap, why_no_nccl(options.device), ErrorCode::kUsage, "NCCL cannot be used");
  const ncclUniqueId id = share_unique_id(bootstrap);
  std::shared_ptr<NcclGroup> group;
  std::string problem;
  try {
    const CudaDeviceScope scope(options.device);
    ncclConfig_t config = nccl_config();
    ncclComm_t comm = nullptr;
    check_nccl(ncclCommInitRankConfig(&comm, bootstrap.size(), id, bootstrap.rank(), &config),
               "ncclCommInitRankConfig");
    group = std::make_shared<NcclGroup>(comm, options.device,
                                        NcclGroup::Limits{options.deadline, options.teardown});
    group->wait_ready("ncclCommInitRankConfig");
  } catch (const Error& error) {
    problem = error.what();
  }
  try {
    require_all_fine(bootstrap, problem, ErrorCode::kInternal, "NCCL could not connect the ranks");
  } catch (...) {
    if (group != nullptr) group->abort();  // the ranks will not part together
    throw;
  }
  return nccl_communicator_over(
      std::move(group), bootstrap.world_ranks(),
      [&bootstrap](int status, std::string_view reason) { bootstrap.abort(status, reason); },
      std::make_shared<TrafficCounters>());
}

std::unique_ptr<Communicator> make_nccl_communicator(const ExistingNccl& existing,
                                                     const NcclOptions& options) {
  AMAXSCOPE_CHECK(existing.comm != nullptr, ErrorCode::kUsage, "no NCCL communicator given");
  const std::string problem = nccl_version_problem();
  AMAXSCOPE_CHECK(problem.empty(), ErrorCode::kUsage,
                  "{}, because the program's own communicator is only split, never used", problem);
  int size = 0;
  int rank = 0;
  int device = 0;
  check_nccl(ncclCommCount(existing.comm, &size), "ncclCommCount");
  check_nccl(ncclCommUserRank(existing.comm, &rank), "ncclCommUserRank");
  check_nccl(ncclCommCuDevice(existing.comm, &device), "ncclCommCuDevice");
  std::vector<int> world_ranks = existing.world_ranks;
  if (world_ranks.empty()) {
    world_ranks.resize(static_cast<std::size_t>(size));
    std::iota(world_ranks.begin(), world_ranks.end(), 0);
  }
  AMAXSCOPE_CHECK(world_ranks.size() == static_cast<std::size_t>(size), ErrorCode::kUsage,
                  "{} world ranks given for an NCCL communicator of {} ranks", world_ranks.size(), size);
  const auto wait_for_parent = [&] {
    const bool done = poll_until(options.deadline, [&] {
      ncclResult_t state = ncclSuccess;
      check_nccl(ncclCommGetAsyncError(existing.comm, &state), "ncclCommGetAsyncError");
      check_nccl(state, "ncclCommSplit");
      return state == ncclSuccess;
    });
    AMAXSCOPE_CHECK(done, ErrorCode::kDeadline, "ncclCommSplit: another rank has not come to it within {} ms",
                    options.deadline.count());
  };
  auto group =
      split_comm(existing.comm, 0, rank, device, {options.deadline, options.teardown}, wait_for_parent);
  return nccl_communicator_over(std::move(group), std::move(world_ranks), existing.abort,
                                std::make_shared<TrafficCounters>());
}

}  // namespace amaxscope
