// NCCL on real devices, one for each rank; skipped where there are fewer.
#include "collectives/nccl/nccl_communicator.hpp"
#include "core/cuda/cuda_device.hpp"
#include "tests/collectives/backend.hpp"
#include "tests/support/mpi_test.hpp"

namespace amaxscope::testing {

namespace {

std::string unavailable(int ranks) {
  const CudaPresence presence = cuda_presence();
  if (presence.devices == 0) return why_no_nccl(0);
  if (presence.devices >= ranks) return {};
  return std::to_string(ranks) + " ranks need a CUDA device each; there are " +
         std::to_string(presence.devices);
}

}  // namespace

std::vector<Backend> backends() {
  const int ranks = make_test_world()->size();
  return {{.name = "nccl_gpu",
           .ranks = ranks,
           .unavailable = unavailable(ranks),
           .run = [](const RankBody& body) {
             const auto job = make_test_world();
             const auto world = make_nccl_communicator(*job, {.device = job->rank(),
                                                              .deadline = std::chrono::seconds(60),
                                                              .teardown = std::chrono::seconds(1)});
             body(*world);
           }}};
}

}  // namespace amaxscope::testing
