// What quantization did to a set of elements, and how two sets make one. Shared by host and device; pure.
#pragma once

#include <cstdint>

namespace amaxscope {

/// Counts and sums of one tensor, shard or micro-batch; += gives those of the concatenation.
/// An element with a NaN original counts in numel and nan only. Elements whose original or decoded value is
/// not finite are left out of the sums; `compared` counts the others.
struct QuantizationError {
  std::uint64_t numel = 0;
  std::uint64_t nan = 0;
  std::uint64_t compared = 0;    ///< elements in the sums
  std::uint64_t underflows = 0;  ///< non-zero originals that decode to +0 or -0: their code or scale is zero
  std::uint64_t overflows = 0;   ///< |x| > largest code * scale_inv, strictly; Inf counts, NaN does not
  /// The scaled value is at or above the first that would round past the largest code on an unbounded grid:
  /// 464 (e4m3, a tie), 61440 (e5m2), 7 (e2m1). Inf counts.
  std::uint64_t saturated = 0;
  double error_squares = 0;      ///< sum (x - q)^2, q the decoded value in fp32
  double signal_squares = 0;     ///< sum x^2
  double quantized_squares = 0;  ///< sum q^2
  double product = 0;            ///< sum x * q
  double saturated_squares = 0;  ///< sum x^2 over the saturated elements
  double flushed_squares = 0;    ///< sum x^2 over the underflows
  float max_error = 0;           ///< max |x - q|

  constexpr QuantizationError& operator+=(const QuantizationError& other) noexcept;
};

constexpr QuantizationError& QuantizationError::operator+=(const QuantizationError& other) noexcept {
  numel += other.numel;
  nan += other.nan;
  compared += other.compared;
  underflows += other.underflows;
  overflows += other.overflows;
  saturated += other.saturated;
  error_squares += other.error_squares;
  signal_squares += other.signal_squares;
  quantized_squares += other.quantized_squares;
  product += other.product;
  saturated_squares += other.saturated_squares;
  flushed_squares += other.flushed_squares;
  max_error = max_error > other.max_error ? max_error : other.max_error;
  return *this;
}

}  // namespace amaxscope
