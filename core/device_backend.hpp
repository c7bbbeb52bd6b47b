// What makes a device usable for tensors: memory, copies, kernels. Carried by a tensor's Stream, so that code
// which is given a tensor needs nothing else, and two backends can live in one process. The interface names
// no CUDA type; kernels/cuda/cuda_backend.hpp has the implementation.
#pragma once

#include <cstddef>
#include <string_view>

#include "core/host_staging.hpp"

namespace amaxscope {

class DeviceKernels;  // kernels/device_kernels.hpp

/// Everything but what says so is enqueued on the stream and does not wait for the device. Throws an Error
/// that says what the device said. Thread safety: one thread at a time.
class DeviceBackend {
 public:
  virtual ~DeviceBackend() = default;
  DeviceBackend() = default;
  DeviceBackend(const DeviceBackend&) = delete;
  DeviceBackend& operator=(const DeviceBackend&) = delete;

  [[nodiscard]] virtual Device device() const noexcept = 0;
  /// Not initialised, aligned to 256 bytes. To be used on that stream, and given back on it: what was
  /// enqueued there before may still use the memory.
  [[nodiscard]] virtual void* allocate(std::size_t bytes, Stream stream) = 0;
  /// While a stream is captured into a CUDA graph: memory that was allocated there is the graph's, and freed
  /// in it when it is given back before the capture ends, else by the graph. Other memory is freed
  /// afterwards.
  virtual void free(void* memory, Stream stream) noexcept = 0;
  /// Whether work on the stream is recorded into a CUDA graph now instead of being done. What would need the
  /// host then is refused: Error(kUsage).
  [[nodiscard]] virtual bool capturing(Stream stream) const = 0;
  /// Both contiguous, of one size in bytes, on this device and one stream.
  virtual void copy(const MutableTensorView& to, const TensorView& from) = 0;
  virtual void zero(const MutableTensorView& tensor) = 0;
  /// For copies between the device and the host.
  [[nodiscard]] virtual HostStaging& staging() noexcept = 0;
  [[nodiscard]] virtual DeviceKernels& kernels() noexcept = 0;
};

/// The backend of a tensor on a device. Throws Error(kTensor) when its stream carries none.
DeviceBackend& backend_of(std::string_view operation, const TensorView& tensor);

/// For what only the host computes: throws Error(kTensor) for a tensor on a device.
void require_host(std::string_view operation, std::string_view name, const TensorView& tensor);

/// A copy on the host. Blocks for a tensor on a device; contiguous. Throws Error(kTensor).
Tensor to_host(const TensorView& tensor);
/// A copy of a contiguous host tensor on the device of `like` and its stream. Does not block.
Tensor to_device(const TensorView& host, const TensorView& like);
/// to = from: same dtype, number of elements and device, contiguous. Not blocking on a device.
void copy_tensor(const MutableTensorView& to, const TensorView& from);

}  // namespace amaxscope
