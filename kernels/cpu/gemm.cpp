#include "kernels/gemm.hpp"

#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/codec/narrow.hpp"
#include "kernels/cpu/arguments.hpp"
#include "kernels/cpu/gemm_operand.hpp"
#include "kernels/device_kernels.hpp"

namespace amaxscope {

namespace {

constexpr std::string_view kOperation = "gemm";

blasint blas_extent(std::int64_t extent) {
  AMAXSCOPE_CHECK(extent <= std::numeric_limits<blasint>::max(), ErrorCode::kTensor,
                  "{}: an extent of {} is more than the BLAS library takes", kOperation, extent);
  return static_cast<blasint>(extent);
}

/// out = alpha * A * B^T + beta * out with extents that are not 0.
void multiply(const GemmOperand& a, const GemmOperand& b, const float* a_data, const float* b_data,
              float alpha, float beta, float* out) {
  cblas_sgemm(CblasRowMajor, a.transposed ? CblasTrans : CblasNoTrans,
              b.transposed ? CblasNoTrans : CblasTrans, blas_extent(a.rows()), blas_extent(b.rows()),
              blas_extent(a.depth()), alpha, a_data, blas_extent(a.data.cols()), b_data,
              blas_extent(b.data.cols()), beta, out, blas_extent(b.rows()));
}
void multiply(const GemmOperand& a, const GemmOperand& b, const double* a_data, const double* b_data,
              double alpha, double beta, double* out) {
  cblas_dgemm(CblasRowMajor, a.transposed ? CblasTrans : CblasNoTrans,
              b.transposed ? CblasNoTrans : CblasTrans, blas_extent(a.rows()), blas_extent(b.rows()),
              blas_extent(a.depth()), alpha, a_data, blas_extent(a.data.cols()), b_data,
              blas_extent(b.data.cols()), beta, out, blas_extent(b.rows()));
}

template <class T>
void scale_in_place(T* out, std::int64_t count, T beta) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = beta == T{0} ? T{0} : out[i] * beta;
}

void gemm_f64(const GemmOperand& a, const GemmOperand& b, const MutableTensorView& out, double alpha,
              double beta) {
  auto* result = cpu::data_of<double>(out);
  if (a.depth() == 0) return scale_in_place(result, out.numel(), beta);
  multiply(a, b, cpu::data_of<double>(a.data), cpu::data_of<double>(b.data), alpha, beta, result);
}

void gemm_f32(const GemmOperand& a, const GemmOperand& b, float* out, double alpha, float beta) {
  const std::int64_t count = a.rows() * b.rows();
  if (a.depth() == 0) return scale_in_place(out, count, beta);
  const bool keep_rotation = cpu::rotation_cancels(a, b);
  const cpu::WideOperand<float> wide_a(a, keep_rotation, kOperation, "a");
  const cpu::WideOperand<float> wide_b(b, keep_rotation, kOperation, "b");
  // The product of two scale_inv can leave fp32's normal range while the result stays inside it.
  const double magnitude = std::abs(alpha);
  if (magnitude >= static_cast<double>(std::numeric_limits<float>::min()) &&
      magnitude <= static_cast<double>(std::numeric_limits<float>::max())) {
    return multiply(a, b, wide_a.data(), wide_b.data(), static_cast<float>(alpha), beta, out);
  }
  std::vector<float> sums(static_cast<std::size_t>(count));
  multiply(a, b, wide_a.data(), wide_b.data(), 1.0F, 0.0F, sums.data());
  for (std::int64_t i = 0; i < count; ++i) {
    const auto product = static_cast<float>(static_cast<double>(sums[static_cast<std::size_t>(i)]) * alpha);
    out[i] = beta == 0.0F ? product : product + beta * out[i];
  }
}

}  // namespace

void gemm(const GemmOperand& a, const GemmOperand& b, const MutableTensorView& out, float beta) {
  if (DeviceKernels* device = device_kernels(kOperation, out)) return device->gemm(a, b, out, beta);
  cpu::require_gemm(kOperation, a, b, out);
  const bool f64 = a.data.dtype() == DType::kF64;
  AMAXSCOPE_CHECK(f64 == (b.data.dtype() == DType::kF64) && f64 == (out.dtype() == DType::kF64),
                  ErrorCode::kTensor, "{}: a is {}, b is {}, out is {}; f64 goes with f64 only", kOperation,
                  to_string(a.data.dtype()), to_string(b.data.dtype()), to_string(out.dtype()));
  for (const GemmOperand* operand : {&a, &b}) {
    AMAXSCOPE_CHECK(
        is_high_precision(operand->data.dtype()) || is_fp8(operand->data.dtype()) || operand->blocks,
        ErrorCode::kTensor,
        "{}: {} is {}; allowed are f64, f32, f16, bf16, e4m3 and e5m2, and block-scaled codes", kOperation,
        operand == &a ? "a" : "b", to_string(operand->data.dtype()));
  }
  const double alpha = static_cast<double>(a.scale_inv) * static_cast<double>(b.scale_inv);
  const std::int64_t count = out.numel();
  cpu::with_real_type(kOperation, "out", out, [&]<class T>(std::type_identity<T>) {
    constexpr bool kNarrow = std::is_same_v<T, F16> || std::is_same_v<T, BF16>;
    AMAXSCOPE_CHECK(!kNarrow || beta == 0.0F, ErrorCode::kTensor,
                    "{}: out is {} and beta {}; accumulation needs an f32 out", kOperation,
                    to_string(out.dtype()), beta);
    if (count == 0) return;
    T* result = cpu::data_of<T>(out);
    if constexpr (std::is_same_v<T, double>) {
      gemm_f64(a, b, out, alpha, static_cast<double>(beta));
    } else if constexpr (std::is_same_v<T, float>) {
      gemm_f32(a, b, result, alpha, beta);
    } else {
      std::vector<float> product(static_cast<std::size_t>(count));
      gemm_f32(a, b, product.data(), alpha, 0.0F);
      for (std::int64_t i = 0; i < count; ++i) result[i] = narrow<T>(product[static_cast<std::size_t>(i)]);
    }
  });
}

void set_gemm_threads(int threads) {
  AMAXSCOPE_CHECK(threads >= 1, ErrorCode::kUsage, "{} GEMM threads; give at least 1", threads);
  openblas_set_num_threads(threads);
}

}  // namespace amaxscope
