#include "core/device_backend.hpp"

#include <cstring>

#include "core/error.hpp"

namespace amaxscope {

namespace {

bool on_host(const TensorView& tensor) { return tensor.device().kind == DeviceKind::kCpu; }

}  // namespace

DeviceBackend& backend_of(std::string_view operation, const TensorView& tensor) {
  DeviceBackend* const backend = tensor.stream().backend;
  AMAXSCOPE_CHECK(backend != nullptr && backend->device() == tensor.device(), ErrorCode::kTensor,
                  "{}: a {} tensor of shape {} is on {}, and its stream has no backend for that device; make "
                  "tensors with the stream of a CudaBackend (docs/cuda.md)",
                  operation, to_string(tensor.dtype()), to_string(tensor.shape()),
                  to_string(tensor.device()));
  return *backend;
}

void require_host(std::string_view operation, std::string_view name, const TensorView& tensor) {
  AMAXSCOPE_CHECK(on_host(tensor), ErrorCode::kTensor,
                  "{}: {} is on {}; this is computed on the host only, copy the tensor there (to_host)",
                  operation, name, to_string(tensor.device()));
}

Tensor to_host(const TensorView& tensor) {
  AMAXSCOPE_CHECK(tensor.contiguous(), ErrorCode::kTensor,
                  "a tensor of shape {} with row stride {} is copied to the host", to_string(tensor.shape()),
                  tensor.row_stride());
  Tensor result(tensor.dtype(), tensor.shape());
  if (tensor.bytes() == 0) return result;
  if (on_host(tensor)) {
    std::memcpy(result.mutable_view().data(), tensor.data(), tensor.bytes());
    return result;
  }
  const auto copy = backend_of("copy to the host", tensor).staging().room_for(tensor);
  copy->fetch(tensor);
  std::memcpy(result.mutable_view().data(), copy->host().data(), tensor.bytes());
  return result;
}

Tensor to_device(const TensorView& host, const TensorView& like) {
  AMAXSCOPE_CHECK(on_host(host) && host.contiguous(), ErrorCode::kTensor,
                  "copy to {}: a tensor of shape {} on {} with row stride {}", to_string(like.device()),
                  to_string(host.shape()), to_string(host.device()), host.row_stride());
  Tensor result(host.dtype(), host.shape(), like.device(), like.stream());
  if (host.bytes() == 0) return result;
  if (on_host(like)) {
    std::memcpy(result.mutable_view().data(), host.data(), host.bytes());
    return result;
  }
  const auto copy = backend_of("copy to the device", like).staging().room_for(result.view());
  std::memcpy(copy->host().data(), host.data(), host.bytes());
  copy->store(result);
  return result;
}

void copy_tensor(const MutableTensorView& to, const TensorView& from) {
  AMAXSCOPE_CHECK(to.dtype() == from.dtype() && to.numel() == from.numel() && to.device() == from.device() &&
                      to.contiguous() && from.contiguous(),
                  ErrorCode::kTensor, "cannot copy {} {} on {} to {} {} on {}", to_string(from.dtype()),
                  to_string(from.shape()), to_string(from.device()), to_string(to.dtype()),
                  to_string(to.shape()), to_string(to.device()));
  if (to.bytes() == 0) return;
  if (on_host(to)) {
    std::memmove(to.data(), from.data(), to.bytes());
  } else {
    backend_of("copy", to).copy(to, from);
  }
}

}  // namespace amaxscope
