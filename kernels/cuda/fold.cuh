// Partial results of threads to one of the tensor, merged in an order that only the grid decides.
#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"

namespace amaxscope::cuda {

template <class Result>
struct FoldSlots {
  alignas(16) unsigned char bytes[kThreads / 2 * sizeof(Result)];
};

/// Thread 0 has the result of the block of kThreads. merge(own, other) changes own.
template <class Result, class Merge>
__device__ void fold_block(Result& own, Merge merge) {
  auto* const slots = reinterpret_cast<Result*>(shared<FoldSlots<Result>>().bytes);
  const int thread = static_cast<int>(threadIdx.x);
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (thread >= half && thread < 2 * half) slots[thread - half] = own;
    __syncthreads();
    if (thread < half) merge(own, slots[thread]);
    __syncthreads();
  }
}

/// Leaves the block's result among the partial ones.
template <class Result, class Merge>
__device__ void store_partial(Result& own, Result* partials, Merge merge) {
  fold_block(own, merge);
  if (threadIdx.x == 0) partials[blockIdx.y * gridDim.x + blockIdx.x] = own;
}

/// One block: thread 0 has all partial results.
template <class Result, class Merge>
__device__ Result merged_partials(const Result* partials, int count, Merge merge) {
  Result own{};
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) merge(own, partials[i]);
  fold_block(own, merge);
  return own;
}

}  // namespace amaxscope::cuda
