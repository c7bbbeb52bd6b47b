// One pass over the elements of a tensor by all threads of a grid, several 16-byte loads at a time.
#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launches.hpp"

namespace amaxscope::cuda {

/// The stretches of elements that lie side by side: the whole tensor, or each row of a padded one.
struct Runs {
  std::int64_t count = 0;  ///< elements of each
  std::int64_t runs = 1;
  std::int64_t stride = 0;  ///< elements from the start of one to that of the next
};

inline Runs runs_of(const Matrix& x) {
  if (x.row_stride == x.cols || x.rows <= 1) return {.count = x.rows * x.cols};
  return {.count = x.cols, .runs = x.rows, .stride = x.row_stride};
}

/// on_pack(pack, index of its first element in the tensor) for what lies at multiples of 16 bytes,
/// on_element(value, index) for the rest: what comes before the first such address and after the last whole
/// pack. Every element is visited once, by the thread of the grid that its place gives.
template <int kInFlight, class T, class OnPack, class OnElement>
__device__ void for_each_pack(const T* data, const Runs& runs, OnPack on_pack, OnElement on_element) {
  constexpr std::int64_t kCount = Pack<T>::kCount;
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t run = blockIdx.y; run < runs.runs; run += gridDim.y) {
    const T* const first = data + run * runs.stride;
    const std::int64_t index = run * runs.count;
    const auto past = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(first) % 16 / sizeof(T));
    std::int64_t head = past == 0 ? 0 : kCount - past;
    head = head < runs.count ? head : runs.count;
    const std::int64_t packs = (runs.count - head) / kCount;
    const T* const aligned = first + head;
    std::int64_t pack = thread;
    for (; pack + (kInFlight - 1) * threads < packs; pack += kInFlight * threads) {
      Pack<T> values[kInFlight];
#pragma unroll
      for (int k = 0; k < kInFlight; ++k) values[k] = load_pack(aligned + (pack + k * threads) * kCount);
#pragma unroll
      for (int k = 0; k < kInFlight; ++k) on_pack(values[k], index + head + (pack + k * threads) * kCount);
    }
    for (; pack < packs; pack += threads)
      on_pack(load_pack(aligned + pack * kCount), index + head + pack * kCount);
    // Fewer than a pack at either end, and at least 32 threads.
    if (thread < head) on_element(widen(first[thread]), index + thread);
    const std::int64_t tail = head + packs * kCount + thread;
    if (tail < runs.count) on_element(widen(first[tail]), index + tail);
  }
}

}  // namespace amaxscope::cuda
