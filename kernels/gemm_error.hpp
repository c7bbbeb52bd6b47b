// How far the result of a GEMM is from the product of what its operands were made from, and whose doing that
// is.
#pragma once

#include <cstdint>

#include "kernels/gemm.hpp"

namespace amaxscope {

/// Sums over the elements of a result; += gives those of two results together.
/// With the operands a, b as they were multiplied, their originals A, B and the result Y, all products in
/// fp64 (OpenBLAS dgemm on the decoded values):
///   R = A B^T   the reference             E = Y - R   the error
///   E_a = (a - A) B^T                     what quantizing a alone would do
///   E_b = A (b - B)^T                     what quantizing b alone would do
///   E_rest = (a - A) (b - B)^T            both together, beyond the two
///   E_accumulation = Y - a b^T            accumulation, rounding of the result, and whatever modified it
/// E is the sum of the four. Each part's share is its projection on E: the four from_* add up to
/// error_squares. An element where any of these is not finite is counted and left out of every sum.
struct GemmError {
  std::uint64_t numel = 0;
  std::uint64_t nonfinite = 0;
  double error_squares = 0;      ///< sum E^2
  double reference_squares = 0;  ///< sum R^2
  double result_squares = 0;     ///< sum Y^2
  double product = 0;            ///< sum R * Y
  double error_reference = 0;    ///< sum E * R
  double from_a = 0;             ///< sum E * E_a
  double from_b = 0;             ///< sum E * E_b
  double from_rest = 0;          ///< sum E * E_rest
  double from_accumulation = 0;  ///< sum E * E_accumulation

  GemmError& operator+=(const GemmError& other) noexcept;
};

/// originals: high precision, of the shapes of a and b. result [a.rows(), b.rows()]: f64, f32, f16 or bf16.
/// Up to four products, each as large as the GEMM itself; one where neither operand differs from its
/// original. CPU, contiguous. Throws Error(kTensor).
GemmError gemm_error(const GemmOperand& a, const GemmOperand& b, const GemmOperand& original_a,
                     const GemmOperand& original_b, const TensorView& result);

}  // namespace amaxscope
