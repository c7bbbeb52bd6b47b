#include "core/tensor.hpp"

#include <cstdlib>
#include <cstring>
#include <new>

#include "core/device_backend.hpp"
#include "core/error.hpp"

namespace amaxscope {

namespace {
constexpr std::size_t kAlignment = 64;
}

std::size_t size_bytes(DType dtype, std::int64_t numel) noexcept {
  return (static_cast<std::size_t>(numel) * static_cast<std::size_t>(bits_per_element(dtype)) + 7) / 8;
}

TensorView::TensorView(const void* data, DType dtype, Shape shape, Device device, Stream stream,
                       std::int64_t row_stride)
    : data_(data),
      dtype_(dtype),
      shape_(shape),
      device_(device),
      stream_(stream),
      row_stride_(row_stride < 0 ? shape.cols() : row_stride) {
  AMAXSCOPE_CHECK(data != nullptr || shape.numel() == 0, ErrorCode::kTensor,
                  "null data for a {} tensor of shape {}", to_string(dtype), to_string(shape));
  AMAXSCOPE_CHECK(row_stride_ >= shape.cols(), ErrorCode::kTensor,
                  "row stride {} is smaller than a row of {}", row_stride_, shape.cols());
}

TensorView TensorView::reshaped(Shape shape) const {
  AMAXSCOPE_CHECK(shape.numel() == numel() && contiguous(), ErrorCode::kTensor, "cannot view {} as {}",
                  to_string(shape_), to_string(shape));
  return {data_, dtype_, shape, device_, stream_};
}

TensorView TensorView::slice(std::int64_t first, std::int64_t count) const {
  AMAXSCOPE_CHECK(contiguous() && bits_per_element(dtype_) % 8 == 0 && first >= 0 && count >= 0 &&
                      first + count <= numel(),
                  ErrorCode::kTensor, "elements {} to {} of a {} tensor of shape {} with row stride {}",
                  first, first + count, to_string(dtype_), to_string(shape_), row_stride_);
  const void* const start =
      count == 0 ? nullptr : static_cast<const std::byte*>(data_) + size_bytes(dtype_, first);
  return {start, dtype_, Shape{count}, device_, stream_};
}

MutableTensorView MutableTensorView::slice(std::int64_t first, std::int64_t count) const {
  const TensorView part = TensorView::slice(first, count);
  return {const_cast<void*>(part.data()), dtype_, part.shape(), device_, stream_};
}

void TensorView::require_host(bool dtype_ok) const {
  AMAXSCOPE_CHECK(dtype_ok, ErrorCode::kTensor, "a {} tensor was read as another type", to_string(dtype_));
  AMAXSCOPE_CHECK(device_.kind == DeviceKind::kCpu, ErrorCode::kTensor, "host access to a tensor on {}",
                  to_string(device_));
  AMAXSCOPE_CHECK(contiguous(), ErrorCode::kTensor, "flat access to a tensor {} with row stride {}",
                  to_string(shape_), row_stride_);
}

void Tensor::Free::operator()(void* memory) const noexcept {
  if (stream.backend != nullptr) {
    stream.backend->free(memory, stream);
  } else {
    std::free(memory);
  }
}

Tensor::Tensor(DType dtype, Shape shape, Device device, Stream stream)
    : dtype_(dtype), shape_(shape), device_(device), stream_(stream), defined_(true) {
  const std::size_t wanted = bytes();
  if (device.kind != DeviceKind::kCpu) {
    DeviceBackend& backend = backend_of("new tensor", TensorView(nullptr, dtype, Shape{0}, device, stream));
    if (wanted != 0) memory_ = {backend.allocate(wanted, stream), Free{stream}};
    return;
  }
  if (wanted == 0) return;
  const std::size_t rounded = (wanted + kAlignment - 1) / kAlignment * kAlignment;
  memory_ = {std::aligned_alloc(kAlignment, rounded), Free{}};
  if (memory_ == nullptr) throw std::bad_alloc();
  std::memset(memory_.get(), 0, rounded);
}

void Tensor::release() noexcept {
  memory_.reset();
  shape_ = Shape{0};
  defined_ = false;
}

TensorView Tensor::view() const { return {memory_.get(), dtype_, shape_, device_, stream_}; }
MutableTensorView Tensor::mutable_view() { return {memory_.get(), dtype_, shape_, device_, stream_}; }

Tensor Tensor::clone() const {
  Tensor copy(dtype_, shape_, device_, stream_);
  copy_tensor(copy.mutable_view(), view());
  copy.defined_ = defined_;
  return copy;
}

void Tensor::reshape(Shape shape) {
  AMAXSCOPE_CHECK(shape.numel() == numel(), ErrorCode::kTensor, "cannot reshape {} to {}", to_string(shape_),
                  to_string(shape));
  shape_ = shape;
}

void Tensor::copy_from_host(const void* source, std::size_t count) {
  AMAXSCOPE_CHECK(count == bytes(), ErrorCode::kTensor,
                  "{} bytes given for a {} tensor of shape {} ({} bytes)", count, to_string(dtype_),
                  to_string(shape_), bytes());
  if (count != 0) std::memcpy(memory_.get(), source, count);
}

}  // namespace amaxscope
