// A CUDA device that is none: kernels run in the emulator, in the order of the imitated runtime's streams.
#pragma once

#include <gmock/gmock.h>

#include <cstring>
#include <memory>
#include <utility>

#include "core/cuda/cuda_handles.hpp"
#include "kernels/cuda/cuda_backend.hpp"
#include "tests/device/connect_emulator.hpp"

namespace amaxscope::testing {

class EmulatedDevice {
 public:
  explicit EmulatedDevice(CudaBackendOptions options = {}) {
    connect_emulator();
    stream_ = CudaStream::create();
    backend_ = make_cuda_backend(std::move(options));
  }
  EmulatedDevice(const EmulatedDevice&) = delete;
  EmulatedDevice& operator=(const EmulatedDevice&) = delete;
  ~EmulatedDevice() { finish(); }

  [[nodiscard]] Stream stream() const { return {stream_.get(), backend_.get()}; }
  [[nodiscard]] Device device() const { return backend_->device(); }
  [[nodiscard]] DeviceBackend& backend() const { return *backend_; }
  [[nodiscard]] Tensor tensor(DType type, Shape shape) const { return {type, shape, device(), stream()}; }
  /// A copy of a host tensor.
  [[nodiscard]] Tensor put(const TensorView& host) const {
    return to_device(host, TensorView(nullptr, DType::kU8, Shape{0}, device(), stream()));
  }
  void finish() const { static_cast<void>(cudaStreamSynchronize(stream_.get())); }

 private:
  CudaStream stream_;
  std::unique_ptr<DeviceBackend> backend_;
};

/// Nothing that should not be was seen, and nothing is left.
class DeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fake::reset();
    before_ = fake::live();
  }
  void TearDown() override {
    EXPECT_THAT(fake::violations(), ::testing::IsEmpty());
    EXPECT_EQ(fake::pageable_copies(), 0);
    EXPECT_EQ(fake::live(), before_);
  }

 private:
  fake::Live before_;
};

/// Byte for byte, wherever they are.
inline ::testing::AssertionResult same(const TensorView& actual, const TensorView& expected) {
  const Tensor a = to_host(actual);
  const Tensor b = to_host(expected);
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) {
    return ::testing::AssertionFailure() << to_string(a.dtype()) << ' ' << to_string(a.shape()) << ", wanted "
                                         << to_string(b.dtype()) << ' ' << to_string(b.shape());
  }
  const auto* x = static_cast<const unsigned char*>(a.view().data());
  const auto* y = static_cast<const unsigned char*>(b.view().data());
  for (std::size_t i = 0; i < a.bytes(); ++i) {
    if (x[i] != y[i]) {
      return ::testing::AssertionFailure()
             << "byte " << i << " of " << a.bytes() << " is " << int{x[i]} << ", wanted " << int{y[i]};
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace amaxscope::testing
