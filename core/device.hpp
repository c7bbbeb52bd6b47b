// Where a tensor lives and on which stream its work is ordered. Value types without a CUDA header:
// the stream is an opaque handle that only core/cuda, kernels/cuda and collectives/nccl look into.
#pragma once

#include <cstdint>
#include <string>

namespace amaxscope {

class DeviceBackend;  // core/device_backend.hpp

enum class DeviceKind : std::uint8_t { kCpu, kCuda };

struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;
  friend bool operator==(const Device&, const Device&) = default;
};

/// "cpu" or "cuda:1"
std::string to_string(const Device& device);

/// Non-owning; null is the default stream.
struct Stream {
  void* handle = nullptr;  ///< of a device's queue; on the CPU of a WorkerPool (kernels/worker_pool.hpp)
  /// What computes and allocates for tensors of this stream; must outlive them. Null on the CPU, and on a
  /// device where tensors are only sent and received.
  DeviceBackend* backend = nullptr;
  /// The same queue of work, whoever computes there.
  friend bool operator==(const Stream& a, const Stream& b) noexcept { return a.handle == b.handle; }
};

}  // namespace amaxscope
