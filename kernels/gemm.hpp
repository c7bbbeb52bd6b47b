// Matrix products of operands that may be FP8 or FP4 codes or high precision.
// Every product is out[M, N] = A[M, K] * B[N, K]^T ("TN"): fprop is activation * weight, dgrad gradient *
// weight^T, wgrad gradient^T * activation^T.
#pragma once

#include <optional>

#include "kernels/block_scaled_view.hpp"

namespace amaxscope {

/// One factor. data is the logical [rows, K] matrix, or its transpose when `transposed`.
/// FP8 codes stand for codes * scale_inv; high-precision data have scale_inv 1.
/// With `blocks`, data are their codes and decoded by them; scale_inv is 1.
struct GemmOperand {
  TensorView data;
  bool transposed = false;
  float scale_inv = 1.0F;
  /// Of codes on a device: f32 [1] beside them, and scale_inv is not read. Made there, and never seen by the
  /// host.
  std::optional<TensorView> device_scale_inv = std::nullopt;
  std::optional<BlockScaledView> blocks = std::nullopt;

  [[nodiscard]] std::int64_t rows() const noexcept { return transposed ? data.cols() : data.rows(); }
  [[nodiscard]] std::int64_t depth() const noexcept { return transposed ? data.rows() : data.cols(); }
};

/// out = (A * B^T) * scale_inv_a * scale_inv_b + beta * out. Accumulates in fp32 (OpenBLAS sgemm on decoded,
/// unscaled codes; block-scaled codes are decoded to fp32, code * scale rounded once, which only an fp32
/// scale of FP8 block scaling and NVFP4 need). Two factors that are both rotated (NVFP4) are multiplied as
/// they are; a single rotated one is turned back first. out: f32, or f16/bf16 (rounded once, beta must be 0).
/// f64 operands with an f64 out use dgemm. On a device see
/// docs/cuda.md; asynchronous there. Throws Error(kTensor) when shapes or types do not fit.
void gemm(const GemmOperand& a, const GemmOperand& b, const MutableTensorView& out, float beta = 0.0F);

/// out[f64] = A * B^T of the decoded but *unscaled* operands, in double, k ascending: exact for FP8 codes as
/// long as each sum fits 53 bits, so that sums over ranks are exact too. The caller applies
/// scale_inv_a * scale_inv_b and rounds once, after the last sum (scale_and_round). Block-scaled codes have
/// their scales in the sum: every factor is exact in double, the sum rounds where it exceeds 53 bits.
void gemm_exact(const GemmOperand& a, const GemmOperand& b, const MutableTensorView& out);

/// out = RN(sums * factor), f64 -> f32, f16 or bf16; the product is rounded to f64 first.
void scale_and_round(const TensorView& sums, double factor, const MutableTensorView& out);

/// How many threads the GEMM library may use in this process.
void set_gemm_threads(int threads);

}  // namespace amaxscope
