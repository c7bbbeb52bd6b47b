// What quantization did to a tensor, in one pass over the original and its codes (or over the original
// alone).
#pragma once

#include <cstdint>

#include "core/tensor.hpp"

namespace amaxscope {

/// Counts and sums of one tensor, shard or micro-batch; += gives those of the concatenation.
/// An element with a NaN original counts in numel and nan only; a non-finite difference is left out of the
/// sums.
struct QuantizationError {
  std::uint64_t numel = 0;
  std::uint64_t nan = 0;
  std::uint64_t underflows = 0;  ///< non-zero originals whose code is +0 or -0
  std::uint64_t overflows = 0;  ///< |x| > fp8_max * scale_inv, strictly; Inf counts, NaN does not (reference)
  std::uint64_t saturated = 0;  ///< RN(|x| * scale) at or above the first value that rounds past the maximum
  double error_squares = 0;     ///< sum (x - q)^2, q the decoded value in fp32
  double signal_squares = 0;    ///< sum x^2
  double quantized_squares = 0;  ///< sum q^2
  double product = 0;            ///< sum x * q
  float max_error = 0;           ///< max |x - q|

  QuantizationError& operator+=(const QuantizationError& other) noexcept;
};

/// x: f32, f16, bf16, rows may be padded. codes: e4m3 or e5m2 of the same shape. scale_inv: f32 [1], scale
/// its source. CPU.
QuantizationError quantization_error(const TensorView& x, const TensorView& codes, float scale,
                                     float scale_inv);

/// The same for codes that were never written: x quantized to `format` (e4m3, e5m2) under `scale`.
QuantizationError quantization_error_of_cast(const TensorView& x, DType format, float scale);

}  // namespace amaxscope
