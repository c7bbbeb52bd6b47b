// Where a tensor lives and on which stream its work is ordered. Value types without a CUDA header:
// the stream is an opaque handle that only core/cuda, kernels/cuda and collectives/nccl look into.
#pragma once

#include <cstdint>
#include <string>

namespace amaxscope {

enum class DeviceKind : std::uint8_t { kCpu, kCuda };

struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;
  friend bool operator==(const Device&, const Device&) = default;
};

/// "cpu" or "cuda:1"
std::string to_string(const Device& device);

/// Non-owning; null is the default stream, and the only one on the CPU.
struct Stream {
  void* handle = nullptr;
  friend bool operator==(const Stream&, const Stream&) = default;
};

}  // namespace amaxscope
