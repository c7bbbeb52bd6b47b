// Host memory in which tensors of a device pass through code that works on host memory only (MPI, files). The
// interface names no CUDA type; core/cuda has the implementation.
// Thread safety: one thread at a time.
#pragma once

#include <memory>

#include "core/tensor.hpp"

namespace amaxscope {

/// Host memory of the size of one tensor.
class HostCopy {
 public:
  virtual ~HostCopy() = default;
  HostCopy() = default;
  HostCopy(const HostCopy&) = delete;
  HostCopy& operator=(const HostCopy&) = delete;

  /// Of the tensor's dtype and shape; valid while this lives. Not initialised before fetch().
  [[nodiscard]] virtual MutableTensorView host() const = 0;
  /// host() = the tensor, once everything on its stream is done. Blocks until then.
  virtual void fetch(const TensorView& from) = 0;
  /// The tensor = host(), enqueued on its stream. Does not block; this may be destroyed at once.
  virtual void store(const MutableTensorView& to) = 0;
};

class HostStaging {
 public:
  virtual ~HostStaging() = default;
  [[nodiscard]] virtual Device device() const noexcept = 0;
  /// For a contiguous tensor of that device. May allocate, and uses memory of earlier copies again.
  /// Throws Error(kUsage) while the tensor's stream is captured into a CUDA graph.
  [[nodiscard]] virtual std::unique_ptr<HostCopy> room_for(const TensorView& tensor) = 0;
};

}  // namespace amaxscope
