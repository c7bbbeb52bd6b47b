// What the device kernels ask of their arguments. Private to kernels/cuda.
#pragma once

#include <string_view>

#include "core/error.hpp"
#include "core/tensor.hpp"
#include "kernels/cuda/launches.hpp"

namespace amaxscope::cuda {

inline void require_device(std::string_view operation, std::string_view name, const TensorView& tensor,
                           const TensorView& like) {
  AMAXSCOPE_CHECK(tensor.device().kind == DeviceKind::kCuda, ErrorCode::kTensor,
                  "{}: {} is on {}, not on a device", operation, name, to_string(tensor.device()));
  AMAXSCOPE_CHECK(tensor.device() == like.device() && tensor.stream() == like.stream(), ErrorCode::kTensor,
                  "{}: {} is on {} and its stream, others are on {} or on another stream", operation, name,
                  to_string(tensor.device()), to_string(like.device()));
}

/// `count` elements of a type, on the device and stream of `like`.
inline void require_vector(std::string_view operation, std::string_view name, const TensorView& tensor,
                           DType type, std::int64_t count, const TensorView& like) {
  require_device(operation, name, tensor, like);
  AMAXSCOPE_CHECK(tensor.dtype() == type && tensor.numel() == count, ErrorCode::kTensor,
                  "{}: {} is {} of shape {}, wanted {} {}", operation, name, to_string(tensor.dtype()),
                  to_string(tensor.shape()), count, to_string(type));
}

inline void require_shape(std::string_view operation, std::string_view name, const TensorView& tensor,
                          const Shape& wanted, const TensorView& like) {
  require_device(operation, name, tensor, like);
  AMAXSCOPE_CHECK(tensor.contiguous() && tensor.shape() == wanted, ErrorCode::kTensor,
                  "{}: {} has shape {} and row stride {}, wanted {} without padding", operation, name,
                  to_string(tensor.shape()), tensor.row_stride(), to_string(wanted));
}

inline void require_compute_type(std::string_view operation, std::string_view name,
                                 const TensorView& tensor) {
  AMAXSCOPE_CHECK(
      tensor.dtype() == DType::kF32 || tensor.dtype() == DType::kF16 || tensor.dtype() == DType::kBF16,
      ErrorCode::kTensor, "{}: {} is {} of shape {}; allowed are f32, f16 and bf16", operation, name,
      to_string(tensor.dtype()), to_string(tensor.shape()));
}

inline void require_fp8(std::string_view operation, std::string_view name, DType format) {
  AMAXSCOPE_CHECK(is_fp8(format), ErrorCode::kTensor, "{}: {} is {}; allowed are e4m3 and e5m2", operation,
                  name, to_string(format));
}

inline Matrix input(std::string_view operation, const TensorView& x) {
  require_device(operation, "x", x, x);
  require_compute_type(operation, "x", x);
  return {x.data(), x.dtype(), x.rows(), x.cols(), x.row_stride()};
}
inline Matrix contiguous_input(std::string_view operation, const TensorView& x) {
  require_shape(operation, "x", x, x.shape(), x);
  return input(operation, x);
}

inline void require_started(std::string_view operation, LaunchError error) {
  AMAXSCOPE_CHECK(error == nullptr, ErrorCode::kInternal, "{}: CUDA does not start the kernel: {}", operation,
                  error);
}

template <class T>
const T* data_of(const TensorView& tensor) {
  return static_cast<const T*>(tensor.data());
}
template <class T>
T* data_of(const MutableTensorView& tensor) {
  return static_cast<T*>(tensor.data());
}

}  // namespace amaxscope::cuda
