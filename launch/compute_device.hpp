// What a training computes on besides the host. The interface names no CUDA type; launch/cuda_device.cpp has
// the implementation, in a library that is loaded when it is asked for (launch/cuda_module.hpp).
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "collectives/communicator.hpp"
#include "core/device.hpp"

namespace amaxscope::launch {

/// One stream of one device, for tensors of one thread.
class ComputeDevice {
 public:
  virtual ~ComputeDevice() = default;
  /// With a backend. Tensors on it must be gone before this is.
  [[nodiscard]] virtual Stream stream() const noexcept = 0;
  /// The ranks of `bootstrap`, for tensors of the device: over NCCL. Collective over bootstrap, which must
  /// outlive the group, as this must. Errors as make_nccl_communicator.
  [[nodiscard]] virtual std::unique_ptr<Communicator> connect(Communicator& bootstrap,
                                                              std::chrono::milliseconds deadline) = 0;
};

struct ComputeDeviceOptions {
  int ordinal = 0;  ///< as this process counts its devices
  /// Products that the device's library does not have: refused (Error(kTensor)) instead of decoded to f32.
  bool refuse_unsupported_products = false;
  std::function<void(const std::string&)> warn = {};  ///< said once for each reason
};

struct DevicesSeen {
  int count = 0;
  std::string why_none;  ///< in the words of the library underneath; empty when there are some
};

/// What a library for devices exports, as kComputeModuleSymbol.
struct ComputeModule {
  const char* version;  ///< kVersion it was built with
  DevicesSeen (*devices)();
  std::unique_ptr<ComputeDevice> (*open)(ComputeDeviceOptions options);
};
inline constexpr const char* kComputeModuleSymbol = "amaxscope_compute_module";

}  // namespace amaxscope::launch
