// A CUDA device for tensors: memory from a pool of its own, page-locked staging, the kernels of kernels/cuda.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/device_backend.hpp"
#include "kernels/cuda/device_gemm.hpp"

namespace amaxscope {

struct CudaBackendOptions {
  int device = 0;
  /// Null: products are refused.
  std::shared_ptr<DeviceGemm> gemm = nullptr;
  UnsupportedGemm unsupported = UnsupportedGemm::kDequantize;
  std::function<void(const std::string&)> warn = {};  ///< a message to people; empty: nobody listens
};

/// Put into the Stream of tensors: Stream{handle, backend.get()}. Must outlive them; streams must outlive
/// their tensors as well. Memory is taken and given back in the order of the tensor's stream
/// (cudaMallocFromPoolAsync), so neither waits for the device. Throws CudaError, also for a device that does
/// not exist, and Error(kTensor) for one without memory pools.
std::unique_ptr<DeviceBackend> make_cuda_backend(CudaBackendOptions options);

}  // namespace amaxscope
