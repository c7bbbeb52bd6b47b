// A CUDA device for tensors: memory from a pool of its own, page-locked staging, the kernels of kernels/cuda.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/device_backend.hpp"
#include "kernels/cuda/device_gemm.hpp"

namespace amaxscope {

/// Device memory of the program's, as a caching allocator hands it out.
struct DeviceAllocator {
  /// Aligned to 256 bytes, to be used by what is enqueued on the stream from now on. Throws when there is
  /// none. While the stream is captured into a CUDA graph the memory must stay as long as the graph.
  std::function<void*(std::size_t bytes, Stream stream)> allocate;
  /// What was enqueued on the stream before still uses it. Does not throw.
  std::function<void(void* memory, std::size_t bytes, Stream stream)> free;
};

struct CudaBackendOptions {
  int device = 0;
  /// Null: products are refused.
  std::shared_ptr<DeviceGemm> gemm = nullptr;
  UnsupportedGemm unsupported = UnsupportedGemm::kDequantize;
  std::function<void(const std::string&)> warn = {};  ///< a message to people; empty: nobody listens
  std::optional<DeviceAllocator> allocator = {};      ///< none: a memory pool of the backend's own
};

/// Put into the Stream of tensors: Stream{handle, backend.get()}. Must outlive them; streams must outlive
/// their tensors as well. Memory is taken and given back in the order of the tensor's stream
/// (cudaMallocFromPoolAsync, or the allocator), so neither waits for the device. Throws CudaError, also for a
/// device that does not exist, and Error(kTensor) for one without memory pools.
std::unique_ptr<DeviceBackend> make_cuda_backend(CudaBackendOptions options);

}  // namespace amaxscope
