// The functions of cuBLASLt that host code here uses: descriptors are checked as the manual says they must
// be, and the product is the CPU's, computed on the stream.
#include <cublasLt.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <set>

#include "core/tensor.hpp"
#include "kernels/gemm.hpp"
#include "tests/fake/fake_cublaslt.hpp"
#include "tests/fake/fake_cublaslt_scales.hpp"
#include "tests/fake/fake_state.hpp"

namespace amaxscope::fake {

namespace {

struct Layout {
  cudaDataType type;
  std::uint64_t rows;
  std::uint64_t cols;
  std::int64_t ld;
};
struct Matmul {
  cublasComputeType_t compute;
  cudaDataType scale;
  cublasOperation_t transa = CUBLAS_OP_N;
  cublasOperation_t transb = CUBLAS_OP_N;
  const void* a_scale = nullptr;
  const void* b_scale = nullptr;
  cublasLtMatmulMatrixScale_t a_mode = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
  cublasLtMatmulMatrixScale_t b_mode = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
  cublasLtPointerMode_t pointers = CUBLASLT_POINTER_MODE_HOST;
  [[nodiscard]] bool by_blocks() const {
    return a_mode != CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F ||
           b_mode != CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
  }
};
struct Preference {
  std::size_t workspace = 0;
};
struct Handle {};

/// What is alive, to see what is destroyed twice or used afterwards.
class Objects {
 public:
  static Objects& get() {
    static Objects& objects = *new Objects;
    return objects;
  }
  template <class T>
  void add(T* object) {
    const std::scoped_lock lock(mutex_);
    objects_.insert(object);
  }
  bool remove(const void* object) {
    const std::scoped_lock lock(mutex_);
    return objects_.erase(object) == 1;
  }
  bool has(const void* object) {
    const std::scoped_lock lock(mutex_);
    return objects_.contains(object);
  }
  std::size_t count() {
    const std::scoped_lock lock(mutex_);
    return objects_.size();
  }

 private:
  std::mutex mutex_;
  std::set<const void*> objects_;
};

cublasStatus_t enter(const char* function) {
  const std::optional<int> error = State::get().enter(function);
  return error ? static_cast<cublasStatus_t>(*error) : CUBLAS_STATUS_SUCCESS;
}

template <class T, class Opaque>
cublasStatus_t make(Opaque** out, T* object) {
  Objects::get().add(object);
  *out = reinterpret_cast<Opaque*>(object);
  return CUBLAS_STATUS_SUCCESS;
}

template <class T, class Opaque>
cublasStatus_t destroy(Opaque* handle, const char* what) {
  if (!Objects::get().remove(handle)) {
    add_violation(fmt::format("{} of what does not exist", what));
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  delete reinterpret_cast<T*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}

bool is_fp8_type(cudaDataType type) { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }

DType dtype_of(cudaDataType type) {
  switch (type) {
    case CUDA_R_16F:
      return DType::kF16;
    case CUDA_R_16BF:
      return DType::kBF16;
    case CUDA_R_8F_E4M3:
      return DType::kE4M3;
    case CUDA_R_8F_E5M2:
      return DType::kE5M2;
    case CUDA_R_4F_E2M1:
      return DType::kE2M1;
    default:
      return DType::kF32;
  }
}

std::size_t bytes_of(const Layout& layout) {
  return size_bytes(dtype_of(layout.type), layout.ld * static_cast<std::int64_t>(layout.cols));
}

/// The factors as the library sees them: op(A) is m x k, op(B) is k x n.
struct Product {
  const Matmul& matmul;
  const Layout& a;
  const Layout& b;
  const Layout& d;
  [[nodiscard]] std::uint64_t m() const { return matmul.transa == CUBLAS_OP_N ? a.rows : a.cols; }
  [[nodiscard]] std::uint64_t k() const { return matmul.transa == CUBLAS_OP_N ? a.cols : a.rows; }
  [[nodiscard]] std::uint64_t depth_of_b() const { return matmul.transb == CUBLAS_OP_N ? b.rows : b.cols; }
  [[nodiscard]] std::uint64_t n() const { return matmul.transb == CUBLAS_OP_N ? b.cols : b.rows; }

  [[nodiscard]] ScaledFactor first(const void* data) const {
    return {.data = data,
            .type = a.type,
            .outer = static_cast<std::int64_t>(m()),
            .depth = static_cast<std::int64_t>(k()),
            .depth_contiguous = matmul.transa == CUBLAS_OP_T,
            .mode = matmul.a_mode,
            .scales = matmul.a_scale};
  }
  [[nodiscard]] ScaledFactor second(const void* data) const {
    return {.data = data,
            .type = b.type,
            .outer = static_cast<std::int64_t>(n()),
            .depth = static_cast<std::int64_t>(k()),
            .depth_contiguous = matmul.transb == CUBLAS_OP_N,
            .mode = matmul.b_mode,
            .scales = matmul.b_scale};
  }

  /// Scales for blocks, as the manual's table of scaling modes allows them on a device.
  [[nodiscard]] bool has_blocks(int capability) const {
    if (matmul.a_scale == nullptr || matmul.b_scale == nullptr) return false;
    const bool fp8 =
        is_fp8_type(a.type) && is_fp8_type(b.type) && !(a.type == CUDA_R_8F_E5M2 && b.type == CUDA_R_8F_E5M2);
    const bool along_rows = matmul.transa == CUBLAS_OP_T && matmul.transb == CUBLAS_OP_N;
    const bool multiples = m() % 16 == 0 && n() % 16 == 0 && k() % 16 == 0;
    const auto both = [&](cublasLtMatmulMatrixScale_t mode) {
      return matmul.a_mode == mode && matmul.b_mode == mode;
    };
    if (both(CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0))
      return fp8 && capability >= 100 && (along_rows || capability < 120) && multiples;
    if (both(CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3)) {
      return a.type == CUDA_R_4F_E2M1 && b.type == CUDA_R_4F_E2M1 && capability >= 100 && along_rows &&
             m() % 16 == 0 && k() % 32 == 0;
    }
    for (const auto mode : {matmul.a_mode, matmul.b_mode}) {
      if (mode != CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F &&
          mode != CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F)
        return false;
    }
    return fp8 && capability == 90 && along_rows && multiples &&
           !both(CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F);
  }

  [[nodiscard]] cublasStatus_t status() const {
    for (const Layout* layout : {&a, &b, &d}) {
      if (layout->ld < static_cast<std::int64_t>(layout->rows)) return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (k() != depth_of_b() || d.rows != m() || d.cols != n()) return CUBLAS_STATUS_INVALID_VALUE;
    if (matmul.compute != CUBLAS_COMPUTE_32F || matmul.scale != CUDA_R_32F)
      return CUBLAS_STATUS_NOT_SUPPORTED;
    const bool wide_out = d.type == CUDA_R_32F || d.type == CUDA_R_16BF || d.type == CUDA_R_16F;
    if (matmul.by_blocks()) {
      const int capability = State::get().with_settings([](auto& settings) { return settings.capability; });
      return has_blocks(capability) && wide_out ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (is_fp8_type(a.type) && is_fp8_type(b.type)) {
      const bool along_rows = matmul.transa == CUBLAS_OP_T && matmul.transb == CUBLAS_OP_N;
      const bool both_e5m2 = a.type == CUDA_R_8F_E5M2 && b.type == CUDA_R_8F_E5M2;
      const bool multiples = m() % 16 == 0 && n() % 16 == 0 && k() % 16 == 0;
      return along_rows && !both_e5m2 && multiples && wide_out ? CUBLAS_STATUS_SUCCESS
                                                               : CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (matmul.a_scale != nullptr || matmul.b_scale != nullptr) return CUBLAS_STATUS_NOT_SUPPORTED;
    const bool types = a.type == b.type && (d.type == a.type || d.type == CUDA_R_32F) &&
                       (a.type == CUDA_R_32F || a.type == CUDA_R_16F || a.type == CUDA_R_16BF);
    return types ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
  }
};

constexpr std::size_t kWorkspace = 4096;

/// What an algorithm was found for.
std::array<std::uint64_t, 7> key_of(const Product& p) {
  return {p.m(),
          p.n(),
          p.k(),
          static_cast<std::uint64_t>(p.a.type),
          static_cast<std::uint64_t>(p.b.type),
          static_cast<std::uint64_t>(p.d.type),
          0x6C740000U + static_cast<std::uint64_t>(p.matmul.transa) * 2 +
              static_cast<std::uint64_t>(p.matmul.transb)};
}

template <class T, class Opaque>
const T* known(Opaque* handle, const char* function) {
  if (Objects::get().has(handle)) return reinterpret_cast<const T*>(handle);
  add_violation(fmt::format("{} with a descriptor that does not exist", function));
  return nullptr;
}

bool aligned(const void* address) { return reinterpret_cast<std::uintptr_t>(address) % 16 == 0; }

/// Where an array of scales must be, and how it must be aligned.
bool has_scales(const Matmul& matmul, const void* scales, const ScaledFactor& factor) {
  if (matmul.by_blocks()) return is_device_memory(scales, scale_bytes(factor)) && aligned(scales);
  return scales == nullptr || is_device_memory(scales, sizeof(float));
}
bool has_factors(const Matmul& matmul, const void* alpha, const void* beta) {
  if (matmul.pointers == CUBLASLT_POINTER_MODE_HOST)
    return !is_device_memory(alpha, sizeof(float)) && !is_device_memory(beta, sizeof(float));
  return is_device_memory(alpha, sizeof(float)) && is_device_memory(beta, sizeof(float));
}

float scale_at(const void* address) {
  return address == nullptr ? 1.0F : *static_cast<const float*>(address);
}

}  // namespace

std::size_t& fake_version() {
  static std::size_t version = 130100;
  return version;
}
void set_cublaslt_version(std::size_t version) { fake_version() = version; }

std::size_t live_cublas_objects() { return Objects::get().count(); }

}  // namespace amaxscope::fake

using namespace amaxscope::fake;  // NOLINT(google-build-using-namespace): this file is the C library

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (const cublasStatus_t error = enter(__func__)) return error;
  return make(handle, new Handle);
}
std::size_t cublasLtGetVersion() { return fake_version(); }
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return destroy<Handle>(handle, __func__); }

const char* cublasLtGetStatusName(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED" : "CUBLAS_STATUS_OTHER";
}
const char* cublasLtGetStatusString(cublasStatus_t) { return "said by the imitated cuBLASLt"; }

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          std::uint64_t rows, std::uint64_t cols, std::int64_t ld) {
  if (const cublasStatus_t error = enter(__func__)) return error;
  return make(layout, new Layout{type, rows, cols, ld});
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return destroy<Layout>(layout, __func__);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  if (const cublasStatus_t error = enter(__func__)) return error;
  return make(desc, new Matmul{.compute = compute, .scale = scale});
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  return destroy<Matmul>(desc, __func__);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              std::size_t bytes) {
  if (const cublasStatus_t error = enter(__func__)) return error;
  if (known<Matmul>(desc, __func__) == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  auto& matmul = *reinterpret_cast<Matmul*>(desc);
  const auto take = [&](auto& member) {
    if (bytes != sizeof member) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(&member, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
  };
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return take(matmul.transa);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return take(matmul.transb);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
      return take(matmul.a_scale);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
      return take(matmul.b_scale);
    case CUBLASLT_MATMUL_DESC_A_SCALE_MODE:
      return take(matmul.a_mode);
    case CUBLASLT_MATMUL_DESC_B_SCALE_MODE:
      return take(matmul.b_mode);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
      return take(matmul.pointers);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  if (const cublasStatus_t error = enter(__func__)) return error;
  return make(preference, new Preference);
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return destroy<Preference>(preference, __func__);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, std::size_t bytes) {
  if (const cublasStatus_t error = enter(__func__)) return error;
  if (known<Preference>(preference, __func__) == nullptr ||
      attribute != CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES || bytes != sizeof(std::size_t))
    return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&reinterpret_cast<Preference*>(preference)->workspace, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int* count) {
  if (const cublasStatus_t error = enter(__func__)) return error;
  *count = 0;
  const auto* matmul = known<Matmul>(desc, __func__);
  const auto* left = known<Layout>(a, __func__);
  const auto* right = known<Layout>(b, __func__);
  const auto* out = known<Layout>(d, __func__);
  const auto* prefers = known<Preference>(preference, __func__);
  if (known<Handle>(handle, __func__) == nullptr || matmul == nullptr || left == nullptr ||
      right == nullptr || out == nullptr || prefers == nullptr || known<Layout>(c, __func__) == nullptr ||
      requested < 1)
    return CUBLAS_STATUS_INVALID_VALUE;
  const Product product{*matmul, *left, *right, *out};
  if (const cublasStatus_t status = product.status()) return status;
  const auto key = key_of(product);
  static_assert(sizeof key <= sizeof results[0].algo);
  std::memcpy(&results[0].algo, key.data(), sizeof key);
  results[0].workspaceSize = std::min(kWorkspace, prefers->workspace);
  results[0].state = CUBLAS_STATUS_SUCCESS;
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algo, void* workspace, std::size_t workspace_bytes,
                              cudaStream_t stream) {
  if (const cublasStatus_t error = enter(__func__)) return error;
  const auto* matmul = known<Matmul>(desc, __func__);
  const auto* left = known<Layout>(a_layout, __func__);
  const auto* right = known<Layout>(b_layout, __func__);
  const auto* out = known<Layout>(d_layout, __func__);
  if (known<Handle>(handle, __func__) == nullptr || matmul == nullptr || left == nullptr ||
      right == nullptr || out == nullptr || known<Layout>(c_layout, __func__) == nullptr || c != d)
    return CUBLAS_STATUS_INVALID_VALUE;
  const Product product{*matmul, *left, *right, *out};
  if (const cublasStatus_t status = product.status()) return status;
  const auto key = key_of(product);
  if (std::memcmp(algo, key.data(), sizeof key) != 0) {
    add_violation("cublasLtMatmul with an algorithm that was found for another product");
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (workspace_bytes != 0 && !is_device_memory(workspace, workspace_bytes))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (!is_device_memory(a, bytes_of(*left)) || !is_device_memory(b, bytes_of(*right)) ||
      !is_device_memory(d, bytes_of(*out)) || !aligned(a) || !aligned(b) || !aligned(d) ||
      !has_scales(*matmul, matmul->a_scale, product.first(a)) ||
      !has_scales(*matmul, matmul->b_scale, product.second(b)) || !has_factors(*matmul, alpha, beta)) {
    add_violation(
        "cublasLtMatmul with matrices, scales or room that are not in device memory, or not aligned");
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  // Columns first: what the library takes for rows x cols lies in memory as a cols x rows matrix, and its
  // first factor is the second one of out = A B^T.
  const auto view_of = [](const Layout& layout, const void* data) {
    return amaxscope::TensorView(
        data, dtype_of(layout.type),
        {static_cast<std::int64_t>(layout.cols), static_cast<std::int64_t>(layout.rows)});
  };
  const bool factors_there = matmul->pointers == CUBLASLT_POINTER_MODE_DEVICE;
  const auto work = [=, matmul = *matmul, left = *left, right = *right, out = *out,
                     alpha_here = factors_there ? 0.0F : *static_cast<const float*>(alpha),
                     beta_here = factors_there ? 0.0F : *static_cast<const float*>(beta)] {
    const float factor = factors_there ? scale_at(alpha) : alpha_here;
    const float accumulate = factors_there ? scale_at(beta) : beta_here;
    try {
      const amaxscope::MutableTensorView target(
          d, dtype_of(out.type), {static_cast<std::int64_t>(out.cols), static_cast<std::int64_t>(out.rows)});
      if (matmul.by_blocks()) {
        const Product scaled{matmul, left, right, out};
        const amaxscope::Tensor first = decoded(scaled.second(b));
        const amaxscope::Tensor second = decoded(scaled.first(a));
        return amaxscope::gemm(
            {.data = first, .transposed = matmul.transb == CUBLAS_OP_T, .scale_inv = factor},
            {.data = second, .transposed = matmul.transa == CUBLAS_OP_N}, target, accumulate);
      }
      const amaxscope::GemmOperand first{.data = view_of(right, b),
                                         .transposed = matmul.transb == CUBLAS_OP_T,
                                         .scale_inv = scale_at(matmul.b_scale) * factor};
      const amaxscope::GemmOperand second{.data = view_of(left, a),
                                          .transposed = matmul.transa == CUBLAS_OP_N,
                                          .scale_inv = scale_at(matmul.a_scale)};
      amaxscope::gemm(first, second, target, accumulate);
    } catch (const std::exception& error) {
      add_violation(error.what());
    }
  };
  return launch(stream, work) == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
