// A main that says when there is no device.
#include <gtest/gtest.h>

#include <cstdio>

#include "core/cuda/cuda_device.hpp"

int main(int count, char** arguments) {
  ::testing::InitGoogleTest(&count, arguments);
  const amaxscope::CudaPresence presence = amaxscope::cuda_presence();
  if (presence.devices == 0) {
    constexpr int kSkipped = 77;
    std::printf("SKIPPED: no CUDA device: %s\n", presence.why_none.c_str());
    return kSkipped;
  }
  return RUN_ALL_TESTS();
}
