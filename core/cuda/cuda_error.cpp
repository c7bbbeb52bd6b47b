#include "core/cuda/cuda_error.hpp"

namespace amaxscope {

CudaError::CudaError(cudaError_t status, std::string_view operation, std::source_location site)
    : Error(ErrorCode::kInternal,
            fmt::format("{}: {} ({})", operation, cudaGetErrorName(status), cudaGetErrorString(status)),
            site),
      status_(status) {}

void check_cuda(cudaError_t status, std::string_view operation, std::source_location site) {
  if (status != cudaSuccess) [[unlikely]] {
    throw CudaError(status, operation, site);
  }
}

}  // namespace amaxscope
