// Tensors of a device in tests.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "core/cuda/cuda_handles.hpp"
#include "core/tensor.hpp"

namespace amaxscope::testing {

/// Elements in device memory, whose work is on a stream.
template <class T>
class OnDevice {
 public:
  OnDevice(std::size_t count, const CudaStream& stream)
      : memory_(count * sizeof(T)), count_(count), stream_(stream.get()) {}
  OnDevice(const std::vector<T>& values, const CudaStream& stream) : OnDevice(values.size(), stream) {
    EXPECT_EQ(cudaMemcpy(memory_.data(), values.data(), memory_.bytes(), cudaMemcpyHostToDevice),
              cudaSuccess);
  }
  [[nodiscard]] MutableTensorView view() const { return view({static_cast<std::int64_t>(count_)}); }
  [[nodiscard]] MutableTensorView view(Shape shape) const {
    return {memory_.data(), DTypeOf<T>::value, shape, Device{DeviceKind::kCuda, 0}, Stream{stream_}};
  }
  [[nodiscard]] T* data() const { return reinterpret_cast<T*>(memory_.data()); }
  /// After everything on the stream.
  [[nodiscard]] std::vector<T> read() const {
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    std::vector<T> values(count_);
    EXPECT_EQ(cudaMemcpy(values.data(), memory_.data(), memory_.bytes(), cudaMemcpyDeviceToHost),
              cudaSuccess);
    return values;
  }

 private:
  DeviceBuffer memory_;
  std::size_t count_;
  cudaStream_t stream_;
};

}  // namespace amaxscope::testing
