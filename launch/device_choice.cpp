#include "launch/device_choice.hpp"

#include <fmt/format.h>

#include <map>
#include <string_view>

#include "core/error.hpp"
#include "launch/failure.hpp"

namespace amaxscope::launch {

namespace {

// Innermost first: an mpirun inside a batch job leaves the variables of the batch system as they were
// outside. Open MPI, MVAPICH2, hydra, Slurm, torchrun.
constexpr const char* kLocalRankVariables[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK",
                                               "MPI_LOCALRANKID", "SLURM_LOCALID", "LOCAL_RANK"};

}  // namespace

Device device_of_rank(int local_rank, std::size_t visible_devices) {
  if (visible_devices == 0) return {};
  return {DeviceKind::kCuda, local_rank % static_cast<int>(visible_devices)};
}

void require_own_devices(const std::vector<DeviceUse>& by_rank, DeviceSharing sharing) {
  if (sharing == DeviceSharing::kAllowed) return;
  std::map<std::string_view, std::vector<int>> ranks_of;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    if (!by_rank[rank].uuid.empty()) ranks_of[by_rank[rank].uuid].push_back(static_cast<int>(rank));
  }
  std::string shared;
  for (const auto& [uuid, ranks] : ranks_of) {
    if (ranks.size() < 2) continue;
    const DeviceUse& use = by_rank[static_cast<std::size_t>(ranks[0])];
    if (!shared.empty()) shared += "; ";
    shared += fmt::format("{} on host {} all use device {} ({} there)", rank_list(ranks), use.host, uuid,
                          use.device);
  }
  AMAXSCOPE_CHECK(
      shared.empty(), ErrorCode::kUsage,
      "{}; NCCL refuses this: start no more ranks on a host than it has devices, or let each rank "
      "see one of its own (CUDA_VISIBLE_DEVICES, srun --gpus-per-task=1); `amaxscope doctor "
      "--share-devices` accepts it",
      shared);
}

std::string local_rank_disagreement(const EnvironmentLookup& get_environment, int local_rank) {
  for (const char* variable : kLocalRankVariables) {
    const char* value = get_environment(variable);
    if (value == nullptr) continue;
    if (value == std::to_string(local_rank)) return {};
    return fmt::format(
        "{}={}, but MPI finds local rank {}: ranks of one machine that do not share its memory (a container "
        "each?), or a variable of another launcher; MPI's is used",
        variable, value, local_rank);
  }
  return {};
}

}  // namespace amaxscope::launch
