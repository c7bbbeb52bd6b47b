// Results that are added to what kernels before have left. The same answer in every kernel of one result:
// only the last of them, by its one thread, changes what the answer depends on.
#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launches.hpp"

namespace amaxscope::cuda {

/// Whether nothing is to be done. The same for all threads of a kernel.
__device__ inline bool skips(const Accumulation& into) {
  if (into.header == nullptr) return false;
  if (into.due != nullptr && *into.due == 0) return true;
  return into.once && into.header->runs != 0;
}

template <class Result>
struct alignas(16) Room {
  unsigned char bytes[sizeof(Result)];
};

/// By all threads of the one block; the result is that of thread 0, and no other block asks skips() any more.
/// merge(sum, later) changes sum.
template <class Result, class Merge>
__device__ void leave(const Result& result, Result* out, const Accumulation& into, Merge merge) {
  // By way of memory: two results are more than the registers of a thread hold.
  auto& room = *reinterpret_cast<Result*>(shared<Room<Result>>().bytes);
  if (threadIdx.x == 0) room = result;
  __syncthreads();
  if (threadIdx.x != 0) return;
  if (into.header == nullptr || into.header->runs == 0) {
    *out = room;
  } else {
    Result sum = *out;
    merge(sum, room);
    *out = sum;
  }
  if (into.header == nullptr) return;
  ++into.header->runs;
  if (into.iteration != nullptr) into.header->iteration = *into.iteration;
}

}  // namespace amaxscope::cuda
