// What an FP8 cast under one scale did to a tensor, in one pass over the original and its codes, or over the
// original alone. Definitions: kernels/error_sums.hpp. Bounds of the sums: docs/cuda.md.
#include <cmath>

#include "kernels/codec/scale.hpp"
#include "kernels/cuda/accumulate.cuh"
#include "kernels/cuda/fold.cuh"
#include "kernels/cuda/runs.cuh"
#include "kernels/error_sums.hpp"

namespace amaxscope::cuda {

namespace {

template <DType kFormat>
class ThreadError {
 public:
  __device__ ThreadError(float scale, float scale_inv)
      : scale_(scale), scale_inv_(scale_inv), limit_(fp8_max_of() * scale_inv) {}

  __device__ void add(float x, std::uint32_t code) {
    const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(x) & 0x7FFFFFFFU;
    ++numel_;
    if (magnitude > kInfinityBits) {
      ++nan_;
      return;
    }
    const bool zero_code = is_fp8_zero(static_cast<std::uint8_t>(code));
    const bool flushed = magnitude != 0 && zero_code;
    const bool saturated =
        (std::bit_cast<std::uint32_t>(x * scale_) & 0x7FFFFFFFU) >= Fp8Traits<kFormat>::kSaturatesFrom;
    underflows_ += flushed ? 1U : 0U;
    overflows_ += std::bit_cast<float>(magnitude) > limit_ ? 1U : 0U;
    saturated_ += saturated ? 1U : 0U;
    const float q = decode_fp8<kFormat>(static_cast<std::uint8_t>(code)) * scale_inv_;
    if (magnitude == kInfinityBits || (std::bit_cast<std::uint32_t>(q) & 0x7FFFFFFFU) >= kInfinityBits)
      return;
    ++compared_;
    const auto original = static_cast<double>(x);
    const auto decoded = static_cast<double>(q);
    const double error = original - decoded;
    const double square = original * original;
    sums_.signal_squares += square;
    if (saturated) sums_.saturated_squares += square;
    if (flushed) sums_.flushed_squares += square;
    sums_.error_squares = fma(error, error, sums_.error_squares);
    sums_.quantized_squares = fma(decoded, decoded, sums_.quantized_squares);
    sums_.product = fma(original, decoded, sums_.product);
    const auto rounded = static_cast<float>(error < 0 ? -error : error);
    if (rounded > sums_.max_error) sums_.max_error = rounded;
  }

  __device__ QuantizationError result() const {
    QuantizationError result = sums_;
    result.numel = numel_;
    result.nan = nan_;
    result.compared = compared_;
    result.underflows = underflows_;
    result.overflows = overflows_;
    result.saturated = saturated_;
    return result;
  }

 private:
  __device__ static constexpr float fp8_max_of() { return Fp8Traits<kFormat>::kGrid.max; }

  float scale_, scale_inv_, limit_;
  std::uint32_t numel_ = 0, nan_ = 0, compared_ = 0, underflows_ = 0, overflows_ = 0, saturated_ = 0;
  QuantizationError sums_;  // its counts stay 0
};

struct Merge {
  __device__ void operator()(QuantizationError& own, const QuantizationError& other) const { own += other; }
};

template <DType kFormat, class T>
__global__ void __launch_bounds__(kThreads, 2)
    error_kernel(const T* x, Runs runs, const std::uint8_t* codes, const float* scale, const float* scale_inv,
                 QuantizationError* partials, Accumulation into) {
  if (skips(into)) return;
  const float factor = load(scale);
  ThreadError<kFormat> own(factor, scale_inv != nullptr ? load(scale_inv) : scale_inverse(factor));
  for_each_pack<2>(
      x, runs,
      [&](const Pack<T>& pack, std::int64_t index) {
        Fp8Codes<T> words{};
        if (codes == nullptr) {
          words = encode_pack<kFormat>(pack, [&](int) { return factor; });
        } else if (is_aligned(codes + index, 4)) {
#pragma unroll
          for (int i = 0; i < Pack<T>::kCount / 4; ++i) {
            words.words[i] = load(reinterpret_cast<const std::uint32_t*>(codes + index + 4 * i));
          }
        } else {
#pragma unroll
          for (int i = 0; i < Pack<T>::kCount; ++i) {
            words.words[i / 4] |= static_cast<std::uint32_t>(codes[index + i]) << (i % 4 * 8);
          }
        }
#pragma unroll
        for (int i = 0; i < Pack<T>::kCount; ++i)
          own.add(pack[i], (words.words[i / 4] >> (i % 4 * 8)) & 0xFFU);
      },
      [&](float value, std::int64_t index) {
        own.add(value,
                codes != nullptr ? codes[index] : encode_fp8_pair<kFormat>(value * factor, 0.0F) & 0xFFU);
      });
  QuantizationError result = own.result();
  store_partial(result, partials, Merge{});
}

__global__ void __launch_bounds__(kThreads)
    finish_error_kernel(const QuantizationError* partials, int count, QuantizationError* out) {
  const QuantizationError result = merged_partials(partials, count, Merge{});
  if (threadIdx.x == 0) *out = result;
}

struct MergeScaled {
  __device__ void operator()(ScaledError& own, const ScaledError& other) const { own.merge(other); }
};

__global__ void __launch_bounds__(kThreads)
    finish_scaled_error_kernel(const QuantizationError* partials, int count, const float* scale,
                               const float* scale_inv, ScaleSource source, ScaledError* out,
                               Accumulation into) {
  if (skips(into)) return;
  ScaledError result;
  result.error = merged_partials(partials, count, Merge{});
  if (threadIdx.x == 0 && result.error.numel != 0) {
    result.first_scale = result.last_scale = *scale;
    result.scale_inv_min = result.scale_inv_max = scale_inv != nullptr ? *scale_inv : scale_inverse(*scale);
    if (source.amax != nullptr) {
      result.clamps = 1U << static_cast<unsigned>(scale_from_amax(*source.amax, source.options).clamp);
    }
  }
  leave(result, out, into, MergeScaled{});
}

/// Sets count to the number of partial results.
LaunchError launch_errors(const Matrix& x, const ErrorArguments& codes, QuantizationError* partials,
                          const Accumulation& into, Stream stream, int& count) {
  count = 0;
  if (x.rows * x.cols == 0) return nullptr;
  return with_format(codes.format, [&]<DType kFormat>(std::integral_constant<DType, kFormat>) {
    return with_type(x.type, [&]<class T>(std::type_identity<T>) {
      const Runs runs = runs_of(x);
      const dim3 grid = grid_for_runs<T>(runs.count, runs.runs, 4, kMaxPartials);
      count = static_cast<int>(grid.x * grid.y);
      return launch(error_kernel<kFormat, T>, grid, kThreads, stream, static_cast<const T*>(x.data), runs,
                    codes.codes, codes.scale, codes.scale_inv, partials, into);
    });
  });
}

}  // namespace

LaunchError launch_quantization_error(const Matrix& x, const ErrorArguments& codes,
                                      QuantizationError* partials, QuantizationError* out, Stream stream) {
  int count = 0;
  if (const LaunchError error = launch_errors(x, codes, partials, {}, stream, count)) return error;
  return launch(finish_error_kernel, dim3{1, 1, 1}, kThreads, stream, partials, count, out);
}

LaunchError launch_add_quantization_error(const Matrix& x, const ErrorArguments& codes,
                                          const ScaleSource& source, QuantizationError* partials,
                                          ScaledError* out, const Accumulation& into, Stream stream) {
  int count = 0;
  if (const LaunchError error = launch_errors(x, codes, partials, into, stream, count)) return error;
  return launch(finish_scaled_error_kernel, dim3{1, 1, 1}, kThreads, stream, partials, count, codes.scale,
                codes.scale_inv, source, out, into);
}

}  // namespace amaxscope::cuda
