// Everything TensorMoments has, in one pass. Bounds of the sums: docs/cuda.md.
#include <cmath>

#include "kernels/cuda/accumulate.cuh"
#include "kernels/cuda/fold.cuh"
#include "kernels/cuda/runs.cuh"
#include "kernels/moments.hpp"

namespace amaxscope::cuda {

namespace {

/// What one thread has seen. Deviations are from its own first finite element: that one is part of the data,
/// so that the sum of squared deviations is at most as many times larger than that about the mean as there
/// are elements.
template <bool kFourth>
class ThreadMoments {
 public:
  __device__ void add(float x) {
    const auto bits = std::bit_cast<std::int32_t>(x);
    const std::uint32_t magnitude = static_cast<std::uint32_t>(bits) & 0x7FFFFFFFU;
    ++numel_;
    nonzero_ += magnitude != 0 ? 1U : 0U;
    if (magnitude >= kInfinityBits) {
      nan_ += magnitude > kInfinityBits ? 1U : 0U;
      positive_inf_ += bits == static_cast<std::int32_t>(kInfinityBits) ? 1U : 0U;
      negative_inf_ += static_cast<std::uint32_t>(bits) == 0xFF800000U ? 1U : 0U;
      return;
    }
    const std::int32_t key = moments::ordered(bits);
    smallest_ = smallest_ < key ? smallest_ : key;
    largest_ = largest_ > key ? largest_ : key;
    amax_ = larger(amax_, magnitude);
    const std::uint32_t from_one = magnitude - 1U;  // zero becomes the largest value
    amin_less_one_ = amin_less_one_ < from_one ? amin_less_one_ : from_one;
    const auto value = static_cast<double>(x);
    if (finite_ == 0) centre_ = value;
    ++finite_;
    const double deviation = value - centre_;
    l1_ += value < 0 ? -value : value;
    squares_ = fma(value, value, squares_);
    first_ += deviation;
    if constexpr (kFourth) {
      const double square = deviation * deviation;
      second_ += square;
      third_ = fma(square, deviation, third_);
      fourth_ = fma(square, square, fourth_);
    } else {
      second_ = fma(deviation, deviation, second_);
    }
  }

  __device__ TensorMoments result() const {
    TensorMoments result;
    result.numel = numel_;
    result.nan = nan_;
    result.inf = std::uint64_t{positive_inf_} + negative_inf_;
    result.nonzero = nonzero_;
    if (finite_ != 0) {
      const auto n = static_cast<double>(finite_);
      const double r = first_ / n;
      result.min = result.min_finite = moments::from_order_key(smallest_);
      result.max = result.max_finite = moments::from_order_key(largest_);
      result.amax_finite = std::bit_cast<float>(amax_);
      if (amin_less_one_ != 0xFFFFFFFFU) result.amin_nonzero = std::bit_cast<float>(amin_less_one_ + 1U);
      result.sum = n * centre_ + first_;
      result.l1 = l1_;
      result.sum_squares = squares_;
      result.mean = centre_ + r;
      const double m2 = second_ - first_ * r;
      result.m2 = m2 > 0 ? m2 : 0.0;
      if constexpr (kFourth) {
        result.m3 = third_ - 3 * r * second_ + 2 * n * r * r * r;
        const double m4 = fourth_ - 4 * r * third_ + 6 * r * r * second_ - 3 * n * r * r * r * r;
        result.m4 = m4 > 0 ? m4 : 0.0;
      }
    }
    if (positive_inf_ != 0) result.max = moments::kInf;
    if (negative_inf_ != 0) result.min = -moments::kInf;
    return result;
  }

 private:
  std::uint32_t numel_ = 0, nan_ = 0, positive_inf_ = 0, negative_inf_ = 0, nonzero_ = 0, finite_ = 0;
  std::int32_t smallest_ = 0x7FFFFFFF;
  std::int32_t largest_ = -0x7FFFFFFF - 1;
  std::uint32_t amax_ = 0;
  std::uint32_t amin_less_one_ = 0xFFFFFFFFU;
  double centre_ = 0, l1_ = 0, squares_ = 0, first_ = 0, second_ = 0, third_ = 0, fourth_ = 0;
};

struct Merge {
  __device__ void operator()(TensorMoments& own, const TensorMoments& other) const { own.merge(other); }
};

template <bool kFourth, class T>
__global__ void __launch_bounds__(kThreads, 2)
    stats_kernel(const T* x, Runs runs, TensorMoments* partials, Accumulation into) {
  if (skips(into)) return;
  ThreadMoments<kFourth> own;
  for_each_pack<4>(
      x, runs,
      [&](const Pack<T>& pack, std::int64_t) {
#pragma unroll
        for (int i = 0; i < Pack<T>::kCount; ++i) own.add(pack[i]);
      },
      [&](float value, std::int64_t) { own.add(value); });
  TensorMoments result = own.result();
  store_partial(result, partials, Merge{});
}

__global__ void __launch_bounds__(kThreads)
    finish_stats_kernel(const TensorMoments* partials, int count, TensorMoments* out, Accumulation into) {
  if (skips(into)) return;
  leave(merged_partials(partials, count, Merge{}), out, into, Merge{});
}

}  // namespace

LaunchError launch_tensor_stats(const Matrix& x, bool fourth, TensorMoments* partials, TensorMoments* out,
                                const Accumulation& into, Stream stream) {
  unsigned count = 0;
  if (x.rows * x.cols != 0) {
    const LaunchError error = with_type(x.type, [&]<class T>(std::type_identity<T>) {
      const Runs runs = runs_of(x);
      const dim3 grid = grid_for_runs<T>(runs.count, runs.runs, 4, kMaxPartials);
      count = grid.x * grid.y;
      return launch(fourth ? stats_kernel<true, T> : stats_kernel<false, T>, grid, kThreads, stream,
                    static_cast<const T*>(x.data), runs, partials, into);
    });
    if (error != nullptr) return error;
  }
  return launch(finish_stats_kernel, dim3{1, 1, 1}, kThreads, stream, partials, static_cast<int>(count), out,
                into);
}

}  // namespace amaxscope::cuda
