// What the CPU kernels ask of their arguments, and the step from a DType to a C++ type. Private to
// kernels/cpu.
#pragma once

#include <string_view>
#include <type_traits>

#include "core/device_backend.hpp"
#include "core/error.hpp"
#include "core/tensor.hpp"

namespace amaxscope::cpu {

inline void require_contiguous(std::string_view operation, std::string_view name, const TensorView& tensor) {
  require_host(operation, name, tensor);
  AMAXSCOPE_CHECK(tensor.contiguous(), ErrorCode::kTensor,
                  "{}: {} has shape {} and row stride {}; rows must follow each other without padding",
                  operation, name, to_string(tensor.shape()), tensor.row_stride());
}

/// A contiguous CPU tensor of exactly this shape.
inline void require_shape(std::string_view operation, std::string_view name, const TensorView& tensor,
                          const Shape& wanted) {
  require_contiguous(operation, name, tensor);
  AMAXSCOPE_CHECK(tensor.shape() == wanted, ErrorCode::kTensor, "{}: {} has shape {}, wanted {}", operation,
                  name, to_string(tensor.shape()), to_string(wanted));
}

inline float read_scalar(std::string_view operation, std::string_view name, const TensorView& tensor) {
  require_host(operation, name, tensor);
  AMAXSCOPE_CHECK(tensor.dtype() == DType::kF32 && tensor.numel() == 1, ErrorCode::kTensor,
                  "{}: {} is {} of shape {}, wanted one f32", operation, name, to_string(tensor.dtype()),
                  to_string(tensor.shape()));
  return *static_cast<const float*>(tensor.data());
}

template <class T>
const T* data_of(const TensorView& tensor) {
  return static_cast<const T*>(tensor.data());
}
template <class T>
T* data_of(const MutableTensorView& tensor) {
  return static_cast<T*>(tensor.data());
}

/// action(std::type_identity<T>{}) for f32, f16 or bf16.
template <class Action>
decltype(auto) with_compute_type(std::string_view operation, std::string_view name, const TensorView& tensor,
                                 Action&& action) {
  switch (tensor.dtype()) {
    case DType::kF32:
      return action(std::type_identity<float>{});
    case DType::kF16:
      return action(std::type_identity<F16>{});
    case DType::kBF16:
      return action(std::type_identity<BF16>{});
    default:
      throw Error(ErrorCode::kTensor,
                  fmt::format("{}: {} is {} of shape {}; allowed are f32, f16 and bf16", operation, name,
                              to_string(tensor.dtype()), to_string(tensor.shape())));
  }
}

/// action(std::type_identity<T>{}) for f64, f32, f16 or bf16.
template <class Action>
decltype(auto) with_real_type(std::string_view operation, std::string_view name, const TensorView& tensor,
                              Action&& action) {
  if (tensor.dtype() == DType::kF64) return action(std::type_identity<double>{});
  return with_compute_type(operation, name, tensor, action);
}

/// action(std::integral_constant<DType, F>{}) for e4m3 or e5m2.
template <class Action>
decltype(auto) with_fp8_format(std::string_view operation, std::string_view name, DType format,
                               Action&& action) {
  AMAXSCOPE_CHECK(is_fp8(format), ErrorCode::kTensor, "{}: {} is {}; allowed are e4m3 and e5m2", operation,
                  name, to_string(format));
  if (format == DType::kE4M3) return action(std::integral_constant<DType, DType::kE4M3>{});
  return action(std::integral_constant<DType, DType::kE5M2>{});
}

/// action(pointer to the first element, number of elements, index of the first) for each stretch of elements
/// that lie side by side: the whole tensor, or each row of a padded one.
template <class T, class Action>
void for_each_run(const TensorView& tensor, Action&& action) {
  if (tensor.numel() == 0) return;
  const T* data = data_of<T>(tensor);
  if (tensor.contiguous()) {
    action(data, tensor.numel(), std::int64_t{0});
    return;
  }
  for (std::int64_t row = 0; row < tensor.rows(); ++row) {
    action(data + row * tensor.row_stride(), tensor.cols(), row * tensor.cols());
  }
}

}  // namespace amaxscope::cpu
