// What a captured step logs, on a device.
#include "tests/device/gpu_fixture.hpp"
#include "tests/device/observed_run.hpp"

namespace amaxscope::testing {
namespace {

TEST_F(Gpu, EachReplayLogsItsOwnNumbersWhenTheyAreDue) {
  expect_each_replay_logs_its_own(put(Tensor(DType::kF32, {4, 8}).view()));
}

}  // namespace
}  // namespace amaxscope::testing
