#include "core/cuda/cuda_device.hpp"

#include <fmt/format.h>

#include "core/cuda/cuda_error.hpp"

namespace amaxscope {

CudaPresence cuda_presence() {
  int devices = 0;  // left as it is when there is no driver
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return {0, fmt::format("{} ({})", cudaGetErrorName(status), cudaGetErrorString(status))};
  }
  if (devices < 1) return {0, "the CUDA driver sees no device"};
  return {devices, {}};
}

CudaDeviceScope::CudaDeviceScope(int device) {
  check_cuda(cudaGetDevice(&before_), "cudaGetDevice");
  if (before_ == device) return;
  check_cuda(cudaSetDevice(device), fmt::format("cudaSetDevice({})", device));
}

CudaDeviceScope::~CudaDeviceScope() {
  int now = before_;
  if (cudaGetDevice(&now) == cudaSuccess && now != before_) static_cast<void>(cudaSetDevice(before_));
}

}  // namespace amaxscope
