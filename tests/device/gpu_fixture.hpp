// Tensors on a real device, for the tests that need one.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/cuda/cuda_handles.hpp"
#include "kernels/cuda/cuda_backend.hpp"

namespace amaxscope::testing {

class Gpu : public ::testing::Test {
 protected:
  explicit Gpu(CudaBackendOptions options = {}) : backend_(make_cuda_backend(std::move(options))) {}

  [[nodiscard]] Stream stream() const { return {stream_.get(), backend_.get()}; }
  [[nodiscard]] Tensor tensor(DType type, Shape shape) const {
    return {type, shape, backend_->device(), stream()};
  }
  [[nodiscard]] Tensor put(const TensorView& host) const {
    return to_device(host, TensorView(nullptr, DType::kU8, Shape{0}, backend_->device(), stream()));
  }

 private:
  CudaStream stream_ = CudaStream::create();
  std::unique_ptr<DeviceBackend> backend_;
};

inline std::vector<std::uint8_t> bytes_of(const TensorView& tensor) {
  const Tensor here = to_host(tensor);
  const auto* first = static_cast<const std::uint8_t*>(here.view().data());
  return {first, first + here.bytes()};
}

}  // namespace amaxscope::testing
