// Owners of what cuBLASLt hands out. Private to kernels/cuda. Making throws Error(kInternal) with what
// cuBLASLt said.
#pragma once

#include <cublasLt.h>

#include <string_view>
#include <utility>

#include "core/error.hpp"

namespace amaxscope {

inline void check_cublas(cublasStatus_t status, std::string_view operation) {
  AMAXSCOPE_CHECK(status == CUBLAS_STATUS_SUCCESS, ErrorCode::kInternal, "{}: {} ({})", operation,
                  cublasLtGetStatusName(status), cublasLtGetStatusString(status));
}

template <class Handle, cublasStatus_t (*kDestroy)(Handle)>
class CublasHandle {
 public:
  CublasHandle() = default;
  CublasHandle(CublasHandle&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  CublasHandle& operator=(CublasHandle&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~CublasHandle() {
    if (handle_ != nullptr) static_cast<void>(kDestroy(handle_));
  }
  [[nodiscard]] Handle get() const noexcept { return handle_; }
  [[nodiscard]] Handle* out() noexcept { return &handle_; }

 private:
  Handle handle_ = nullptr;
};

using LtHandle = CublasHandle<cublasLtHandle_t, cublasLtDestroy>;
using LtMatmul = CublasHandle<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using LtLayout = CublasHandle<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using LtPreference = CublasHandle<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

}  // namespace amaxscope
