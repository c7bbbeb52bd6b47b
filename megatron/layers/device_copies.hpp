// Copies of host tensors on the device that linear layers compute on. Used by one thread. Copying to a device
// does not block.
#pragma once

#include <cstdint>
#include <optional>

#include "core/tensor.hpp"

namespace amaxscope::megatron {

/// A new tensor on the device of the stream, which has a backend.
Tensor copied_to(Stream device, const TensorView& host);

/// A tensor that is kept on a device as long as the host's stays what it was.
class DeviceCopy {
 public:
  /// The copy of `host`, whose contents have this version; copied when it is another than the last time, to
  /// the same place. The tensor has the same type and shape in every call.
  TensorView of(const TensorView& host, std::uint64_t version, Stream device);

 private:
  Tensor there_;
  std::optional<std::uint64_t> version_;
};

}  // namespace amaxscope::megatron
