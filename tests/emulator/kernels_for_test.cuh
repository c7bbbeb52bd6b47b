// Small kernels that are right, and the same with one mistake each. What the emulator must find, and what
// only a sanitizer can.
#pragma once

#include "kernels/cuda/device.cuh"

namespace amaxscope::test {

enum class Mistake {
  kNone,
  kMissingBarrier,    ///< a sum reads what others have not written yet
  kDivergentBarrier,  ///< half of the threads wait
  kOtherBarrier,      ///< in two places at once
  kLaneOutsideMask,   ///< a shuffle reads a lane that takes no part
  kOwnLaneMissing,    ///< a mask without the caller
  kMisaligned,        ///< a vector of 16 bytes at a multiple of 4
  kPlainMaximum,      ///< of all blocks, without an atomic
  kStorePastEnd,      ///< one element
  kSharedPastEnd,     ///< one element of shared memory
};

inline constexpr int kTestThreads = 64;

struct TestShared {
  std::uint32_t values[kTestThreads];
};

/// out[block] = sum of x over the block's 64 elements; largest[0] = the largest of those sums.
template <Mistake kMistake>
__global__ void sum_kernel(const std::uint32_t* x, std::uint32_t* out, std::uint32_t* largest) {
  TestShared& block = cuda::shared<TestShared>();
  const unsigned thread = threadIdx.x;
  block.values[thread] = x[blockIdx.x * kTestThreads + thread];
  if constexpr (kMistake == Mistake::kSharedPastEnd) {
    volatile std::uint32_t* values = block.values;
    if (thread == 0) values[kTestThreads] = 0;
  }
  if constexpr (kMistake == Mistake::kDivergentBarrier) {
    if (thread < kTestThreads / 2) __syncthreads();
  } else if constexpr (kMistake == Mistake::kOtherBarrier) {
    if (thread < kTestThreads / 2) {
      __syncthreads();
    } else {
      __syncthreads();
    }
  } else if constexpr (kMistake != Mistake::kMissingBarrier) {
    __syncthreads();
  }
  if (thread >= 32) return;
  std::uint32_t sum = block.values[thread] + block.values[thread + 32];
  if constexpr (kMistake == Mistake::kLaneOutsideMask) {
    if (thread < 16) sum += __shfl_xor_sync(0xFFFFU, sum, 16);
  }
  if constexpr (kMistake == Mistake::kOwnLaneMissing) sum += __shfl_xor_sync(0xFFFFU, sum, 1);
  for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(0xFFFFFFFFU, sum, lanes);
  if constexpr (kMistake == Mistake::kMisaligned) {
    sum += cuda::load(reinterpret_cast<const uint4*>(x + 1)).x;
  }
  if (thread != 0) return;
  out[blockIdx.x + (kMistake == Mistake::kStorePastEnd ? 1U : 0U)] = sum;
  if constexpr (kMistake == Mistake::kPlainMaximum) {
    if (sum > *largest) *largest = sum;
  } else {
    atomicMax(largest, sum);
  }
}

}  // namespace amaxscope::test
