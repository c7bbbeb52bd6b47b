// Tensors and views of them.
// A view never owns: whoever made it keeps the memory alive, on a device until the work enqueued on the
// view's stream is done. A Tensor owns its memory and is movable, not copyable (clone() says what it costs).
// Thread safety: const use from several threads is safe. Nothing here blocks.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "core/device.hpp"
#include "core/dtype.hpp"
#include "core/half.hpp"
#include "core/shape.hpp"

namespace amaxscope {

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::kF64;
};
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct DTypeOf<F16> {
  static constexpr DType value = DType::kF16;
};
template <>
struct DTypeOf<BF16> {
  static constexpr DType value = DType::kBF16;
};
template <>
struct DTypeOf<std::uint32_t> {
  static constexpr DType value = DType::kU32;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::kI32;
};
template <>
struct DTypeOf<std::uint64_t> {
  static constexpr DType value = DType::kU64;
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType value = DType::kI64;
};

/// Bytes that `numel` elements take.
std::size_t size_bytes(DType dtype, std::int64_t numel) noexcept;

/// Read-only view: {data, dtype, shape, device, stream}, row-major. row_stride() is the distance in elements
/// between the starts of two rows of the M x K matrix; it differs from cols() only in a view of a padded
/// buffer, which the inspecting kernels accept and the others refuse.
class TensorView {
 public:
  TensorView() = default;
  /// data may be null when the shape has no element. row_stride < 0 means contiguous.
  TensorView(const void* data, DType dtype, Shape shape, Device device = {}, Stream stream = {},
             std::int64_t row_stride = -1);

  [[nodiscard]] const void* data() const noexcept { return data_; }
  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  [[nodiscard]] const Shape& shape() const noexcept { return shape_; }
  [[nodiscard]] Device device() const noexcept { return device_; }
  [[nodiscard]] Stream stream() const noexcept { return stream_; }
  [[nodiscard]] std::int64_t rows() const noexcept { return shape_.rows(); }
  [[nodiscard]] std::int64_t cols() const noexcept { return shape_.cols(); }
  [[nodiscard]] std::int64_t numel() const noexcept { return shape_.numel(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return size_bytes(dtype_, numel()); }
  [[nodiscard]] std::int64_t row_stride() const noexcept { return row_stride_; }
  [[nodiscard]] bool contiguous() const noexcept { return row_stride_ == cols(); }
  /// The same bytes under another shape of equally many elements. Throws Error(kTensor).
  [[nodiscard]] TensorView reshaped(Shape shape) const;
  /// Elements [first, first + count) of a contiguous tensor of whole bytes. Throws Error(kTensor).
  [[nodiscard]] TensorView slice(std::int64_t first, std::int64_t count) const;

  /// Host elements of a contiguous CPU view. T = uint8_t reads any one-byte type (codes included).
  /// Throws Error(kTensor) on another dtype, a device tensor or a strided view.
  template <class T>
  [[nodiscard]] std::span<const T> values() const {
    require_host(dtype_matches<T>());
    return {static_cast<const T*>(data_), static_cast<std::size_t>(numel())};
  }

 protected:
  template <class T>
  [[nodiscard]] bool dtype_matches() const noexcept {
    if constexpr (std::is_same_v<T, std::uint8_t>) {
      return bits_per_element(dtype_) == 8;
    } else {
      return dtype_ == DTypeOf<T>::value;
    }
  }
  void require_host(bool dtype_ok) const;

  const void* data_ = nullptr;
  DType dtype_ = DType::kF32;
  Shape shape_{0};
  Device device_{};
  Stream stream_{};
  std::int64_t row_stride_ = 0;
};

/// A view through which the tensor may be written.
class MutableTensorView : public TensorView {
 public:
  MutableTensorView() = default;
  MutableTensorView(void* data, DType dtype, Shape shape, Device device = {}, Stream stream = {})
      : TensorView(data, dtype, shape, device, stream) {}

  [[nodiscard]] void* data() const noexcept {
    return const_cast<void*>(data_);  // constructed from a mutable pointer only
  }
  [[nodiscard]] MutableTensorView slice(std::int64_t first, std::int64_t count) const;
  template <class T>
  [[nodiscard]] std::span<T> values() const {
    require_host(dtype_matches<T>());
    return {static_cast<T*>(data()), static_cast<std::size_t>(numel())};
  }
};

class Tensor {
 public:
  Tensor() = default;
  /// Memory is 64-byte aligned and zeroed; on a device aligned to 256 and not initialised. A device needs a
  /// stream with a backend (core/device_backend.hpp), which must outlive the tensor; the memory is given back
  /// behind what is on the stream by then. Throws Error(kTensor) without one, std::bad_alloc, what the
  /// backend throws.
  Tensor(DType dtype, Shape shape, Device device = {}, Stream stream = {});
  /// Where `like` is, on its stream.
  static Tensor beside(const TensorView& like, DType dtype, Shape shape) {
    return {dtype, shape, like.device(), like.stream()};
  }

  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  [[nodiscard]] const Shape& shape() const noexcept { return shape_; }
  [[nodiscard]] std::int64_t rows() const noexcept { return shape_.rows(); }
  [[nodiscard]] std::int64_t cols() const noexcept { return shape_.cols(); }
  [[nodiscard]] std::int64_t numel() const noexcept { return shape_.numel(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return size_bytes(dtype_, numel()); }
  [[nodiscard]] Device device() const noexcept { return device_; }
  [[nodiscard]] Stream stream() const noexcept { return stream_; }
  /// False for a default-constructed tensor and after release().
  [[nodiscard]] bool defined() const noexcept { return defined_; }
  /// Frees the memory; the tensor is undefined afterwards.
  void release() noexcept;

  [[nodiscard]] TensorView view() const;
  [[nodiscard]] MutableTensorView mutable_view();
  // Without the second one a mutable tensor would be read through its mutable view, which compilers warn of.
  operator TensorView() const { return view(); }           // NOLINT(google-explicit-constructor)
  operator TensorView() { return view(); }                 // NOLINT(google-explicit-constructor)
  operator MutableTensorView() { return mutable_view(); }  // NOLINT(google-explicit-constructor)

  template <class T>
  [[nodiscard]] std::span<const T> values() const {
    return view().values<T>();
  }
  template <class T>
  [[nodiscard]] std::span<T> values() {
    return mutable_view().values<T>();
  }

  [[nodiscard]] Tensor clone() const;
  void reshape(Shape shape);  ///< same number of elements

  /// A CPU tensor holding a copy of the values.
  template <class T>
  static Tensor of(std::span<const T> values, Shape shape) {
    Tensor result(DTypeOf<T>::value, shape);
    result.copy_from_host(values.data(), values.size_bytes());
    return result;
  }
  template <class T>
  static Tensor of(std::initializer_list<T> values, Shape shape) {
    return of<T>(std::span<const T>(values.begin(), values.size()), shape);
  }

 private:
  struct Free {
    Stream stream;  ///< with a backend: of a device
    void operator()(void* memory) const noexcept;
  };
  void copy_from_host(const void* source, std::size_t bytes);

  std::unique_ptr<void, Free> memory_;
  DType dtype_ = DType::kF32;
  Shape shape_{0};
  Device device_{};
  Stream stream_{};
  bool defined_ = false;
};

}  // namespace amaxscope
