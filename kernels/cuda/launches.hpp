// From C++ to the kernels: plain arguments, no CUDA header and no tensor, so that nvcc reads little. Private
// to kernels/cuda; quantize.hpp and statistics.hpp check tensors and come here. All are asynchronous on the
// stream and return null, or what CUDA says is wrong with the launch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/device.hpp"
#include "core/dtype.hpp"
#include "kernels/accumulated.hpp"
#include "kernels/codec/scale.hpp"
#include "kernels/error_sums.hpp"
#include "kernels/moments.hpp"

namespace amaxscope::cuda {

using LaunchError = const char*;

/// f32, f16 or bf16.
struct Matrix {
  const void* data = nullptr;
  DType type = DType::kF32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t row_stride = 0;
};

/// What a kernel does beside making its result: added to what is there, and counted. A null header: out =
/// result.
struct Accumulation {
  AccumulatedHeader* header = nullptr;
  const std::uint32_t* due = nullptr;       ///< 0 there: nothing is done. Null: always
  const std::int64_t* iteration = nullptr;  ///< to be noted; null: none
  bool once = false;                        ///< nothing is done where something is there
};

[[nodiscard]] LaunchError launch_amax(const Matrix& x, std::uint32_t* out, bool accumulate, Stream stream);
/// Maximum with what out holds.
[[nodiscard]] LaunchError launch_add_amax(const Matrix& x, std::uint32_t* out, const Accumulation& into,
                                          Stream stream);
[[nodiscard]] LaunchError launch_scale(const std::uint32_t* amax, const ScaleOptions& options, float* scale,
                                       float* scale_inv, Stream stream);
[[nodiscard]] LaunchError launch_cast(const Matrix& x, DType format, const float* scale, std::uint8_t* codes,
                                      Stream stream);
[[nodiscard]] LaunchError launch_cast_transpose(const Matrix& x, DType format, const float* scale,
                                                std::uint8_t* codes, std::uint8_t* transposed, Stream stream);

/// out [cols, rows] = x [rows, cols] of elements of 1, 2 or 4 bytes.
[[nodiscard]] LaunchError launch_transpose(const void* x, int element_bytes, std::int64_t rows,
                                           std::int64_t cols, void* out, Stream stream);
/// type: f32, f16 or bf16.
[[nodiscard]] LaunchError launch_convert(const Matrix& x, void* out, DType type, Stream stream);

/// Null codes: this direction is not wanted.
template <class Scale>
struct BlockTarget {
  std::uint8_t* codes = nullptr;
  Scale* scales = nullptr;
  std::int64_t scale_stride = 0;  ///< elements from one stored row of scales to the next
};
[[nodiscard]] LaunchError launch_mxfp8(const Matrix& x, DType format, bool two_dimensional,
                                       const BlockTarget<std::uint8_t>& rowwise,
                                       const BlockTarget<std::uint8_t>& columnwise, Stream stream);
[[nodiscard]] LaunchError launch_fp8_blocks(const Matrix& x, DType format, const ScaleOptions& options,
                                            bool two_dimensional, const BlockTarget<float>& rowwise,
                                            const BlockTarget<float>& columnwise, Stream stream);

/// max |R(x)|, R the rotation along M in groups of 16; maximum with what out holds.
[[nodiscard]] LaunchError launch_rotated_amax(const Matrix& x, std::uint32_t* out, Stream stream);
struct Nvfp4Arguments {
  bool two_dimensional = false;
  bool rotate_columnwise = false;
  bool stochastic = false;
  bool squared_error = false;  ///< of four over six
  bool four_over_six = false;
  float scale_max = 448.0F;
  std::uint64_t key = 0;
  std::uint64_t call = 0;
  const std::uint32_t* rowwise_amax = nullptr;  ///< bits, on the device
  const std::uint32_t* columnwise_amax = nullptr;
};
[[nodiscard]] LaunchError launch_nvfp4(const Matrix& x, const Nvfp4Arguments& arguments,
                                       const BlockTarget<std::uint8_t>& rowwise,
                                       const BlockTarget<std::uint8_t>& columnwise, Stream stream);

[[nodiscard]] LaunchError launch_dequantize(const std::uint8_t* codes, DType format, std::int64_t count,
                                            const float* scale_inv, void* out, DType type, Stream stream);
/// A block-scaled matrix; extents of what one stored scale is about are powers of two.
struct ScaledCodes {
  const std::uint8_t* codes = nullptr;
  const void* scales = nullptr;
  DType format = DType::kE4M3;
  DType scale_format = DType::kE8M0;
  std::int64_t stored_rows = 0;  ///< of the codes
  std::int64_t stored_cols = 0;
  bool codes_transposed = false;
  bool scales_transposed = false;
  bool rotated = false;
  int scale_rows_log2 = 0;
  int scale_cols_log2 = 0;
  std::int64_t scale_stride = 0;
  bool has_tensor_scale = false;
  const std::uint32_t* tensor_amax = nullptr;  ///< bits, on the device
  float tensor_factor = 0;
};
[[nodiscard]] LaunchError launch_dequantize_blocks(const ScaledCodes& codes, void* out, DType type,
                                                   Stream stream);

/// Scales of one byte of a factor: (outer, inner) lies at outer * outer_stride + inner * inner_stride.
struct ScaleBytes {
  const std::uint8_t* scales = nullptr;
  std::int64_t outer = 0;  ///< rows of the factor
  std::int64_t inner = 0;  ///< stretches along its depth
  std::int64_t outer_stride = 0;
  std::int64_t inner_stride = 0;
};
/// out: whole tiles of 128 x 4, aligned to 16 bytes.
[[nodiscard]] LaunchError launch_tile_scales(const ScaleBytes& from, std::uint8_t* out, Stream stream);
/// out[0] = (amax_a * factor_a) * (amax_b * factor_b), out[1] = beta; amaxes are bits, on the device.
[[nodiscard]] LaunchError launch_product_scale(const std::uint32_t* amax_a, float factor_a,
                                               const std::uint32_t* amax_b, float factor_b, float beta,
                                               float* out, Stream stream);

/// Blocks of a grid that leaves one partial result each.
inline constexpr int kMaxPartials = 2048;
[[nodiscard]] LaunchError launch_tensor_stats(const Matrix& x, bool fourth, TensorMoments* partials,
                                              TensorMoments* out, const Accumulation& into, Stream stream);
/// codes null: of the cast with the scale.
struct ErrorArguments {
  const std::uint8_t* codes = nullptr;
  DType format = DType::kE4M3;
  const float* scale = nullptr;
  const float* scale_inv = nullptr;  ///< null: 1 / scale
};
[[nodiscard]] LaunchError launch_quantization_error(const Matrix& x, const ErrorArguments& codes,
                                                    QuantizationError* partials, QuantizationError* out,
                                                    Stream stream);
/// Of what a scale was made; null: that is not known.
struct ScaleSource {
  const std::uint32_t* amax = nullptr;
  ScaleOptions options;
};
[[nodiscard]] LaunchError launch_add_quantization_error(const Matrix& x, const ErrorArguments& codes,
                                                        const ScaleSource& source,
                                                        QuantizationError* partials, ScaledError* out,
                                                        const Accumulation& into, Stream stream);

[[nodiscard]] LaunchError launch_zero(void* target, std::size_t bytes, Stream stream);

}  // namespace amaxscope::cuda
