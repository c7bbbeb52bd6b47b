// Results that are added to what kernels before have left. The same answer in every kernel of one result:
// only the last of them, by its one thread, changes what the answer depends on.
#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launches.hpp"

namespace amaxscope::cuda {

/// Whether nothing is to be done. For all threads of a block before a barrier, or for the one that leave()s.
__device__ inline bool skips(const Accumulation& into) {
  if (into.header == nullptr) return false;
  if (into.due != nullptr && *into.due == 0) return true;
  return into.once && into.header->runs != 0;
}

/// By one thread, when no other will ask skips() of this kernel any more. merge(sum, later) changes sum.
template <class Result, class Merge>
__device__ void leave(const Result& result, Result* out, const Accumulation& into, Merge merge) {
  if (into.header == nullptr || into.header->runs == 0) {
    *out = result;
  } else {
    Result sum = *out;
    merge(sum, result);
    *out = sum;
  }
  if (into.header == nullptr) return;
  ++into.header->runs;
  if (into.iteration != nullptr) into.header->iteration = *into.iteration;
}

}  // namespace amaxscope::cuda
