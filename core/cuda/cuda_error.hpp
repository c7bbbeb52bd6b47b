// Errors of the CUDA runtime as errors of this library.
#pragma once

#include <cuda_runtime_api.h>

#include <source_location>
#include <string_view>

#include "core/error.hpp"

namespace amaxscope {

/// An Error(kInternal) that knows what CUDA said. The message holds the operation, CUDA's name of the error
/// and its text.
class CudaError : public Error {
 public:
  CudaError(cudaError_t status, std::string_view operation,
            std::source_location site = std::source_location::current());
  [[nodiscard]] cudaError_t status() const noexcept { return status_; }

 private:
  cudaError_t status_;
};

/// Throws CudaError unless the status is cudaSuccess. `operation`: "cudaMalloc of 4096 bytes".
void check_cuda(cudaError_t status, std::string_view operation,
                std::source_location site = std::source_location::current());

}  // namespace amaxscope
