#include "kernels/cuda/cublaslt_gemm.hpp"

#include <cstdint>
#include <optional>
#include <string>

#include "core/cuda/cuda_device.hpp"
#include "core/cuda/cuda_error.hpp"
#include "core/device_backend.hpp"
#include "kernels/cuda/cublaslt_handles.hpp"

namespace amaxscope {

namespace {

constexpr std::size_t kWorkspace = std::size_t{32} << 20;  // what NVIDIA recommends for Hopper and newer
constexpr std::int64_t kFp8Multiple = 16;                  // of the extents and addresses of FP8 matrices

cudaDataType type_of(DType type) {
  switch (type) {
    case DType::kF32:
      return CUDA_R_32F;
    case DType::kF16:
      return CUDA_R_16F;
    case DType::kBF16:
      return CUDA_R_16BF;
    case DType::kE4M3:
      return CUDA_R_8F_E4M3;
    default:
      return CUDA_R_8F_E5M2;
  }
}

bool is_narrow_or_f32(DType type) {
  return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16;
}

bool is_aligned(const TensorView& tensor) {
  return reinterpret_cast<std::uintptr_t>(tensor.data()) % static_cast<std::uintptr_t>(kFp8Multiple) == 0;
}

/// cuBLASLt counts columns first: what lies in memory as rows x cols is to it cols x rows.
LtLayout layout_of(const TensorView& matrix) {
  LtLayout layout;
  check_cublas(cublasLtMatrixLayoutCreate(layout.out(), type_of(matrix.dtype()),
                                          static_cast<std::uint64_t>(matrix.cols()),
                                          static_cast<std::uint64_t>(matrix.rows()), matrix.cols()),
               "cublasLtMatrixLayoutCreate");
  return layout;
}

template <class T>
void set(const LtMatmul& matmul, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check_cublas(cublasLtMatmulDescSetAttribute(matmul.get(), attribute, &value, sizeof value),
               "cublasLtMatmulDescSetAttribute");
}

class CublasLtGemm final : public DeviceGemm {
 public:
  explicit CublasLtGemm(int device) {
    const CudaDeviceScope scope(device);
    int major = 0;
    int minor = 0;
    check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
               "cudaDeviceGetAttribute");
    check_cuda(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device),
               "cudaDeviceGetAttribute");
    capability_ = major * 10 + minor;
    check_cublas(cublasLtCreate(handle_.out()), "cublasLtCreate");
  }

  [[nodiscard]] std::string why_not(const GemmOperand& a, const GemmOperand& b, const MutableTensorView& out,
                                    float beta) const override {
    if (!is_narrow_or_f32(out.dtype()))
      return fmt::format("no {} results on a device", to_string(out.dtype()));
    if (beta != 0.0F && out.dtype() != DType::kF32)
      return fmt::format("accumulation into {}; it needs f32", to_string(out.dtype()));
    if (a.blocks || b.blocks) return "block-scaled codes are not multiplied as they are";
    const DType type_a = a.data.dtype();
    const DType type_b = b.data.dtype();
    if (is_fp8(type_a) && is_fp8(type_b)) return why_not_fp8(a, b, out);
    if (type_a != type_b) return fmt::format("{} times {}", to_string(type_a), to_string(type_b));
    if (!is_narrow_or_f32(type_a)) return fmt::format("no products of {} on a device", to_string(type_a));
    if (out.dtype() != type_a && out.dtype() != DType::kF32)
      return fmt::format("a product of {} in {}", to_string(type_a), to_string(out.dtype()));
    return {};
  }

  void multiply(const GemmOperand& a, const GemmOperand& b, const MutableTensorView& out,
                float beta) override {
    if (out.numel() == 0) return;
    if (a.depth() == 0) return without_depth(out, beta);
    // out^T [N, M] = B [N, K] A^T [K, M] to a library that counts columns first: b is its first factor.
    const LtLayout first = layout_of(b.data);
    const LtLayout second = layout_of(a.data);
    const LtLayout result = layout_of(out);
    LtMatmul matmul;
    check_cublas(cublasLtMatmulDescCreate(matmul.out(), CUBLAS_COMPUTE_32F, CUDA_R_32F),
                 "cublasLtMatmulDescCreate");
    set(matmul, CUBLASLT_MATMUL_DESC_TRANSA, b.transposed ? CUBLAS_OP_N : CUBLAS_OP_T);
    set(matmul, CUBLASLT_MATMUL_DESC_TRANSB, a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (b.device_scale_inv) set(matmul, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, b.device_scale_inv->data());
    if (a.device_scale_inv) set(matmul, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, a.device_scale_inv->data());
    const float alpha = (a.device_scale_inv ? 1.0F : a.scale_inv) * (b.device_scale_inv ? 1.0F : b.scale_inv);

    LtPreference preference;
    check_cublas(cublasLtMatmulPreferenceCreate(preference.out()), "cublasLtMatmulPreferenceCreate");
    check_cublas(
        cublasLtMatmulPreferenceSetAttribute(preference.get(), CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &kWorkspace, sizeof kWorkspace),
        "cublasLtMatmulPreferenceSetAttribute");
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    check_cublas(
        cublasLtMatmulAlgoGetHeuristic(handle_.get(), matmul.get(), first.get(), second.get(), result.get(),
                                       result.get(), preference.get(), 1, &found, &count),
        fmt::format("cublasLtMatmulAlgoGetHeuristic for {} x {} x {} of {} and {}", a.rows(), b.rows(),
                    a.depth(), to_string(a.data.dtype()), to_string(b.data.dtype())));
    AMAXSCOPE_CHECK(count > 0, ErrorCode::kInternal,
                    "cuBLASLt has no algorithm for {} x {} x {} of {} and {}", a.rows(), b.rows(), a.depth(),
                    to_string(a.data.dtype()), to_string(b.data.dtype()));
    Tensor workspace;
    if (found.workspaceSize != 0) {
      workspace = Tensor::beside(out, DType::kU8, {static_cast<std::int64_t>(found.workspaceSize)});
    }
    check_cublas(
        cublasLtMatmul(handle_.get(), matmul.get(), &alpha, b.data.data(), first.get(), a.data.data(),
                       second.get(), &beta, out.data(), result.get(), out.data(), result.get(), &found.algo,
                       workspace.defined() ? workspace.mutable_view().data() : nullptr, found.workspaceSize,
                       static_cast<cudaStream_t>(out.stream().handle)),
        "cublasLtMatmul");
  }

 private:
  [[nodiscard]] std::string why_not_fp8(const GemmOperand& a, const GemmOperand& b,
                                        const MutableTensorView& out) const {
    if (capability_ < 89) {
      return fmt::format("a device of compute capability {}.{} does not multiply FP8", capability_ / 10,
                         capability_ % 10);
    }
    if (a.data.dtype() == DType::kE5M2 && b.data.dtype() == DType::kE5M2)
      return "cuBLASLt has no e5m2 times e5m2";
    if (a.transposed || b.transposed) return "cuBLASLt multiplies FP8 codes along their rows only";
    if (a.rows() % kFp8Multiple != 0 || b.rows() % kFp8Multiple != 0 || a.depth() % kFp8Multiple != 0 ||
        !is_aligned(a.data) || !is_aligned(b.data) || !is_aligned(out)) {
      return "cuBLASLt wants FP8 matrices in multiples of 16, at multiples of 16 bytes";
    }
    return {};
  }

  static void without_depth(const MutableTensorView& out, float beta) {
    AMAXSCOPE_CHECK(beta == 0.0F || beta == 1.0F, ErrorCode::kTensor,
                    "gemm: a product without depth, added to {} times a result; on a device 0 and 1 times",
                    beta);
    if (beta == 0.0F) backend_of("gemm", out).zero(out);
  }

  LtHandle handle_;
  int capability_ = 0;
};

}  // namespace

std::shared_ptr<DeviceGemm> make_cublaslt_gemm(int device) { return std::make_shared<CublasLtGemm>(device); }

}  // namespace amaxscope
