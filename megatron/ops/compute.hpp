// What the operations share: the compute dtypes as C++ types, the type they calculate in, and checks of their
// views. Private to megatron/ops. Every check throws Error(kTensor) that names the operation and the
// argument.
#pragma once

#include <string_view>
#include <type_traits>

#include "core/error.hpp"
#include "core/tensor.hpp"
#include "kernels/codec/narrow.hpp"

namespace amaxscope::megatron {

/// The type that elements of T are calculated in: double for double, float for float and BF16.
template <class T>
using Arithmetic = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// Exact.
template <class T>
Arithmetic<T> widen(T x) noexcept {
  if constexpr (std::is_same_v<T, double>) {
    return x;
  } else {
    return to_float(x);
  }
}
template <class T>
double widen_to_double(T x) noexcept {
  return static_cast<double>(widen(x));
}

/// action(std::type_identity<T>{}) for f64, f32 or bf16.
template <class Action>
decltype(auto) with_compute_dtype(std::string_view operation, std::string_view name, DType dtype,
                                  Action&& action) {
  switch (dtype) {
    case DType::kF64:
      return action(std::type_identity<double>{});
    case DType::kF32:
      return action(std::type_identity<float>{});
    case DType::kBF16:
      return action(std::type_identity<BF16>{});
    default:
      throw Error(ErrorCode::kTensor, fmt::format("{}: {} is {}; allowed are f64, f32 and bf16", operation,
                                                  name, to_string(dtype)));
  }
}

/// f64 under f64 compute, else f32: what gradients, moments and master copies are kept in.
constexpr DType accumulation_dtype(DType compute) noexcept {
  return compute == DType::kF64 ? DType::kF64 : DType::kF32;
}

inline void require_contiguous(std::string_view operation, std::string_view name, const TensorView& tensor) {
  AMAXSCOPE_CHECK(tensor.device().kind == DeviceKind::kCpu, ErrorCode::kTensor,
                  "{}: {} is on {}; this build computes on the CPU", operation, name,
                  to_string(tensor.device()));
  AMAXSCOPE_CHECK(tensor.contiguous(), ErrorCode::kTensor,
                  "{}: {} has shape {} and row stride {}; rows must follow each other without padding",
                  operation, name, to_string(tensor.shape()), tensor.row_stride());
}

/// Contiguous, on the CPU, of this dtype and this shape.
inline void require_tensor(std::string_view operation, std::string_view name, const TensorView& tensor,
                           DType dtype, const Shape& shape) {
  require_contiguous(operation, name, tensor);
  AMAXSCOPE_CHECK(tensor.dtype() == dtype && tensor.shape() == shape, ErrorCode::kTensor,
                  "{}: {} is {} of shape {}, wanted {} of shape {}", operation, name,
                  to_string(tensor.dtype()), to_string(tensor.shape()), to_string(dtype), to_string(shape));
}

/// As require_tensor, but any shape with these rows and columns: [S, B, H] passes for [S*B, H].
inline void require_matrix(std::string_view operation, std::string_view name, const TensorView& tensor,
                           DType dtype, std::int64_t rows, std::int64_t cols) {
  require_contiguous(operation, name, tensor);
  AMAXSCOPE_CHECK(tensor.dtype() == dtype && tensor.rows() == rows && tensor.cols() == cols,
                  ErrorCode::kTensor, "{}: {} is {} of shape {}, wanted {} of {} rows and {} columns",
                  operation, name, to_string(tensor.dtype()), to_string(tensor.shape()), to_string(dtype),
                  rows, cols);
}

}  // namespace amaxscope::megatron
