// Which CUDA devices this process has, and which one a thread works on.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace amaxscope {

struct CudaPresence {
  int devices = 0;
  std::string why_none;  ///< CUDA's own words; empty when there are devices
};

/// A machine without a driver, with a driver that is too old for the runtime and without a device all have
/// none; that is an answer and not an error. Does not block.
[[nodiscard]] CudaPresence cuda_presence();

/// While it lives, calls of this thread go to that device; afterwards to the one before.
class CudaDeviceScope {
 public:
  /// Throws CudaError, also for an ordinal that does not exist.
  explicit CudaDeviceScope(int device);
  ~CudaDeviceScope();
  CudaDeviceScope(const CudaDeviceScope&) = delete;
  CudaDeviceScope& operator=(const CudaDeviceScope&) = delete;

 private:
  int before_ = 0;
};

}  // namespace amaxscope
