// The real CUDA runtime and NCCL, with or without a device: without one they are refused with their own
// words.
#include <gmock/gmock.h>

#include "collectives/loopback_communicator.hpp"
#include "collectives/nccl/nccl_communicator.hpp"
#include "core/cuda/cuda_device.hpp"
#include "core/error.hpp"

namespace amaxscope::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

TEST(RealLibraries, WithoutADeviceAreRefusedWithTheirWords) {
  const CudaPresence presence = cuda_presence();
  if (presence.devices > 0) GTEST_SKIP() << "there are devices; collectives_nccl_gpu_test uses them";
  EXPECT_THAT(presence.why_none,
              AnyOf(HasSubstr("cudaErrorInsufficientDriver"), HasSubstr("cudaErrorNoDevice")));
  EXPECT_EQ(why_no_nccl(0), "no CUDA device: " + presence.why_none);
  const auto bootstrap = make_single_rank_communicator();
  try {
    static_cast<void>(make_nccl_communicator(*bootstrap, {}));
    FAIL() << "NCCL without a device";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_EQ(std::string(error.what()), "NCCL cannot be used: rank 0: no CUDA device: " + presence.why_none);
  }
}

}  // namespace
}  // namespace amaxscope::testing
