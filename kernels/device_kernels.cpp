#include "kernels/device_kernels.hpp"

#include "core/device_backend.hpp"

namespace amaxscope {

DeviceKernels* device_kernels(std::string_view operation, const TensorView& tensor) {
  if (tensor.device().kind == DeviceKind::kCpu) return nullptr;
  return &backend_of(operation, tensor).kernels();
}

}  // namespace amaxscope
