#include "kernels/cuda/cublaslt_gemm.hpp"

#include <array>
#include <cstdint>
#include <string>

#include "core/cuda/cuda_device.hpp"
#include "core/cuda/cuda_error.hpp"
#include "core/device_backend.hpp"
#include "kernels/cuda/cublaslt_handles.hpp"
#include "kernels/cuda/cublaslt_rules.hpp"
#include "kernels/device_kernels.hpp"

namespace amaxscope {

namespace {

constexpr std::size_t kWorkspace = std::size_t{32} << 20;  // what NVIDIA recommends for Hopper and newer

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
    case DType::kE2M1:
      return CUDA_R_4F_E2M1;
    default:
      return CUDA_R_8F_E5M2;
  }
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

cublasLtMatmulMatrixScale_t mode_of(LtScaling scaling) {
  switch (scaling) {
    case LtScaling::kMxfp8:
      return CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0;
    case LtScaling::kNvfp4:
      return CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3;
    case LtScaling::kFp8Blocks1d:
      return CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    case LtScaling::kFp8Blocks2d:
      return CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
    default:
      return CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
  }
}

/// One factor as cuBLASLt gets it, and room for what had to be made of it.
struct Factor {
  TensorView data;
  bool transposed = false;
  LtScaling scaling = LtScaling::kNone;
  const void* scales = nullptr;
  Tensor turned = {};
  Tensor tiled = {};
};

Factor factor_of(const GemmOperand& operand, const LtDevice& device, DeviceBackend& backend) {
  Factor factor{.data = operand.data, .transposed = operand.transposed, .scaling = scaling_of(operand)};
  if (operand.device_scale_inv) factor.scales = operand.device_scale_inv->data();
  if (!operand.blocks) return factor;
  if (factor.scaling == LtScaling::kMxfp8 && factor.transposed && only_along_rows(device)) {
    const TensorView& codes = operand.data;
    factor.turned = Tensor::beside(codes, codes.dtype(), {codes.cols(), codes.rows()});
    backend.kernels().transpose(codes, factor.turned);
    factor.data = factor.turned.view();
    factor.transposed = false;
  }
  if (factor.scaling == LtScaling::kMxfp8 || factor.scaling == LtScaling::kNvfp4) {
    factor.tiled = backend.kernels().tiled_scales(*operand.blocks);
    factor.scales = factor.tiled.view().data();
  } else {
    factor.scales = operand.blocks->scales.data();
  }
  return factor;
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
    device_ = {.capability = major * 10 + minor, .version = cublasLtGetVersion()};
    check_cublas(cublasLtCreate(handle_.out()), "cublasLtCreate");
  }

  [[nodiscard]] std::string multiply(const GemmOperand& a, const GemmOperand& b, const MutableTensorView& out,
                                     float beta) override {
    if (std::string why = why_not(device_, a, b, out, beta); !why.empty()) return why;
    if (out.numel() == 0) return {};
    if (a.depth() == 0) {
      without_depth(out, beta);
      return {};
    }
    DeviceBackend& backend = backend_of("gemm", out);
    // out^T [N, M] = B [N, K] A^T [K, M] to a library that counts columns first: b is its first factor.
    const Factor first = factor_of(b, device_, backend);
    const Factor second = factor_of(a, device_, backend);
    const LtLayout first_layout = layout_of(first.data);
    const LtLayout second_layout = layout_of(second.data);
    const LtLayout result = layout_of(out);
    LtMatmul matmul;
    check_cublas(cublasLtMatmulDescCreate(matmul.out(), CUBLAS_COMPUTE_32F, CUDA_R_32F),
                 "cublasLtMatmulDescCreate");
    set(matmul, CUBLASLT_MATMUL_DESC_TRANSA, first.transposed ? CUBLAS_OP_N : CUBLAS_OP_T);
    set(matmul, CUBLASLT_MATMUL_DESC_TRANSB, second.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (first.scales != nullptr) set(matmul, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, first.scales);
    if (second.scales != nullptr) set(matmul, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, second.scales);
    if (a.blocks) {
      set(matmul, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, mode_of(first.scaling));
      set(matmul, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, mode_of(second.scaling));
    }
    const std::array<float, 2> on_host = {
        (a.device_scale_inv ? 1.0F : a.scale_inv) * (b.device_scale_inv ? 1.0F : b.scale_inv), beta};
    const float* factors = on_host.data();  // alpha and beta
    Tensor on_device;
    if (first.scaling == LtScaling::kNvfp4) {
      // The second level of its scales is in the device's memory.
      on_device = backend.kernels().product_scale(*a.blocks, *b.blocks, beta);
      factors = static_cast<const float*>(on_device.view().data());
      set(matmul, CUBLASLT_MATMUL_DESC_POINTER_MODE, CUBLASLT_POINTER_MODE_DEVICE);
    }

    LtPreference preference;
    check_cublas(cublasLtMatmulPreferenceCreate(preference.out()), "cublasLtMatmulPreferenceCreate");
    check_cublas(
        cublasLtMatmulPreferenceSetAttribute(preference.get(), CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &kWorkspace, sizeof kWorkspace),
        "cublasLtMatmulPreferenceSetAttribute");
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle_.get(), matmul.get(), first_layout.get(), second_layout.get(),
                                       result.get(), result.get(), preference.get(), 1, &found, &count);
    const std::string what = fmt::format("{} x {} x {} of {} and {}", a.rows(), b.rows(), a.depth(),
                                         to_string(a.data.dtype()), to_string(b.data.dtype()));
    // The manual allows it, but there is nothing for these sizes or this device.
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || (status == CUBLAS_STATUS_SUCCESS && count == 0))
      return fmt::format("cuBLASLt has no algorithm for {}", what);
    check_cublas(status, fmt::format("cublasLtMatmulAlgoGetHeuristic for {}", what));
    Tensor workspace;
    if (found.workspaceSize != 0) {
      workspace = Tensor::beside(out, DType::kU8, {static_cast<std::int64_t>(found.workspaceSize)});
    }
    check_cublas(cublasLtMatmul(handle_.get(), matmul.get(), factors, first.data.data(), first_layout.get(),
                                second.data.data(), second_layout.get(), factors + 1, out.data(),
                                result.get(), out.data(), result.get(), &found.algo,
                                workspace.defined() ? workspace.mutable_view().data() : nullptr,
                                found.workspaceSize, static_cast<cudaStream_t>(out.stream().handle)),
                 "cublasLtMatmul");
    return {};
  }

 private:
  static void without_depth(const MutableTensorView& out, float beta) {
    AMAXSCOPE_CHECK(beta == 0.0F || beta == 1.0F, ErrorCode::kTensor,
                    "gemm: a product without depth, added to {} times a result; on a device 0 and 1 times",
                    beta);
    if (beta == 0.0F) backend_of("gemm", out).zero(out);
  }

  LtHandle handle_;
  LtDevice device_;
};

}  // namespace

std::shared_ptr<DeviceGemm> make_cublaslt_gemm(int device) { return std::make_shared<CublasLtGemm>(device); }

}  // namespace amaxscope
