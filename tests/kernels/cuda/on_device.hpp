// Tensors of the kernel tests on a device, with bytes before and after that no kernel may touch.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "core/tensor.hpp"
#include "kernels/cast.hpp"
#include "tests/kernels/block_support.hpp"
#include "tests/kernels/cuda/memory.hpp"
#include "tests/kernels/values.hpp"

namespace amaxscope::test {

inline constexpr Device kDevice{DeviceKind::kCuda, 0};

class OnDevice {
 public:
  /// Uninitialised (0xFF). past: elements that the first lies past a multiple of 256 bytes; stride < 0:
  /// contiguous.
  OnDevice(DType type, Shape shape, int past = 0, std::int64_t stride = -1)
      : type_(type), shape_(shape), stride_(stride < 0 ? shape.cols() : stride) {
    offset_ = kGuard + size_bytes(type, past);
    data_bytes_ = shape.numel() == 0 ? 0 : size_bytes(type, (shape.rows() - 1) * stride_ + shape.cols());
    bytes_.assign(offset_ + data_bytes_ + kGuard, kFilling);
    if (data_bytes_ != 0) std::memset(bytes_.data() + offset_, 0xFF, data_bytes_);
    memory_ = static_cast<std::byte*>(device_allocate(bytes_.size()));
    copy_to_device(memory_, bytes_.data(), bytes_.size());
  }
  /// A copy of a contiguous CPU tensor.
  explicit OnDevice(const TensorView& host, int past = 0, std::int64_t stride = -1)
      : OnDevice(host.dtype(), host.shape(), past, stride) {
    const auto* from = static_cast<const std::byte*>(host.data());
    const std::size_t row_bytes = size_bytes(type_, shape_.cols());
    if (data_bytes_ == 0) return;
    if (stride_ == shape_.cols()) {
      std::memcpy(bytes_.data() + offset_, from, data_bytes_);
    } else {
      // Between the rows: large numbers in every type, and not NaN, which an amax leaves out.
      std::memset(bytes_.data() + offset_, 0x7B, data_bytes_);
      for (std::int64_t row = 0; row < shape_.rows(); ++row) {
        std::memcpy(bytes_.data() + offset_ + size_bytes(type_, row * stride_),
                    from + row_bytes * static_cast<std::size_t>(row), row_bytes);
      }
    }
    copy_to_device(memory_, bytes_.data(), bytes_.size());
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() { device_free(memory_); }

  [[nodiscard]] MutableTensorView view() const { return {memory_ + offset_, type_, shape_, kDevice, {}}; }
  [[nodiscard]] TensorView padded_view() const {
    return {memory_ + offset_, type_, shape_, kDevice, {}, stride_};
  }
  /// A contiguous one, back. What lies around it must be as it was.
  [[nodiscard]] Tensor host() const {
    std::vector<std::byte> now(bytes_.size());
    copy_from_device(now.data(), memory_, now.size());
    for (std::size_t i = 0; i < now.size(); ++i) {
      if (i >= offset_ && i < offset_ + data_bytes_) continue;
      if (now[i] != bytes_[i]) {
        ADD_FAILURE() << "a kernel wrote at byte " << static_cast<long>(i) - static_cast<long>(offset_)
                      << " of " << data_bytes_;
        break;
      }
    }
    Tensor result(type_, shape_);
    if (data_bytes_ != 0) std::memcpy(result.mutable_view().data(), now.data() + offset_, data_bytes_);
    return result;
  }

 private:
  // The address sanitizer watches what lies around by itself, reads included.
#ifdef AMAXSCOPE_ASAN
  static constexpr std::size_t kGuard = 0;
#else
  static constexpr std::size_t kGuard = 256;
#endif
  static constexpr std::byte kFilling{0xA5};
  DType type_;
  Shape shape_;
  std::int64_t stride_;
  std::size_t offset_ = 0;
  std::size_t data_bytes_ = 0;
  std::vector<std::byte> bytes_;
  std::byte* memory_ = nullptr;
};

/// The bytes of two CPU tensors. NaN of fp32 are equal whatever their bits: a device has one NaN only.
inline ::testing::AssertionResult same_bytes(const Tensor& actual, const Tensor& expected) {
  if (actual.bytes() != expected.bytes()) return ::testing::AssertionFailure() << "other sizes";
  const std::size_t width = actual.dtype() == DType::kF32 ? 4 : 1;
  const auto* a = static_cast<const unsigned char*>(actual.view().data());
  const auto* b = static_cast<const unsigned char*>(expected.view().data());
  for (std::size_t i = 0; i < actual.bytes(); i += width) {
    if (std::memcmp(a + i, b + i, width) == 0) continue;
    if (width == 4 && std::isnan(actual.values<float>()[i / 4]) &&
        std::isnan(expected.values<float>()[i / 4]))
      continue;
    return ::testing::AssertionFailure()
           << "byte " << i << " of " << actual.bytes() << " is " << int{a[i]} << ", on the CPU " << int{b[i]};
  }
  return ::testing::AssertionSuccess();
}

inline constexpr DType kComputeTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
inline constexpr DType kFp8Formats[] = {DType::kE4M3, DType::kE5M2};

/// hard_values in a compute type.
inline Tensor hard_tensor(Shape shape, DType type, unsigned seed) {
  return converted(matrix_of(hard_values(shape.rows(), shape.cols(), seed), shape.rows(), shape.cols()),
                   type);
}

/// Another order of blocks and threads for each test, the same each time.
class CudaKernels : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    unsigned seed = 1;
    for (const char c : name) seed = seed * 31 + static_cast<unsigned char>(c);
    set_order(seed);
  }
};

}  // namespace amaxscope::test
