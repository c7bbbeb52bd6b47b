#include "megatron/ops/activation.hpp"

#include <cmath>
#include <numbers>

#include "megatron/ops/compute.hpp"

namespace amaxscope::megatron {

namespace {

/// The distribution function of the standard normal. erfc keeps its relative precision in the left tail,
/// where 1 + erf cancels.
template <class A>
A normal_cdf(A x) {
  constexpr A kInverseSqrt2 = std::numbers::sqrt2_v<A> / 2;
  return A{0.5} * std::erfc(-x * kInverseSqrt2);
}

template <class A>
A normal_density(A x) {
  constexpr A kInverseSqrt2Pi = std::numbers::inv_sqrtpi_v<A> * std::numbers::sqrt2_v<A> / 2;
  return kInverseSqrt2Pi * std::exp(-x * x / 2);
}

template <class A>
A logistic(A x) {
  return A{1} / (A{1} + std::exp(-x));
}

}  // namespace

void gelu_forward(const TensorView& x, const MutableTensorView& y) {
  require_contiguous("gelu_forward", "x", x);
  require_tensor("gelu_forward", "y", y, x.dtype(), x.shape());
  with_compute_dtype("gelu_forward", "x", x.dtype(), [&]<class T>(std::type_identity<T>) {
    const auto in = x.values<T>();
    const auto out = y.values<T>();
    for (std::size_t i = 0; i < in.size(); ++i) {
      const Arithmetic<T> value = widen(in[i]);
      out[i] = narrow<T>(value * normal_cdf(value));
    }
  });
}

void gelu_backward(const TensorView& x, const TensorView& dy, const MutableTensorView& dx) {
  require_contiguous("gelu_backward", "x", x);
  require_tensor("gelu_backward", "dy", dy, x.dtype(), x.shape());
  require_tensor("gelu_backward", "dx", dx, x.dtype(), x.shape());
  with_compute_dtype("gelu_backward", "x", x.dtype(), [&]<class T>(std::type_identity<T>) {
    const auto in = x.values<T>();
    const auto gradient = dy.values<T>();
    const auto out = dx.values<T>();
    for (std::size_t i = 0; i < in.size(); ++i) {
      const Arithmetic<T> value = widen(in[i]);
      const Arithmetic<T> slope = normal_cdf(value) + value * normal_density(value);
      out[i] = narrow<T>(widen(gradient[i]) * slope);
    }
  });
}

void swiglu_forward(const TensorView& x, const MutableTensorView& y) {
  constexpr std::string_view kOperation = "swiglu_forward";
  require_contiguous(kOperation, "y", y);
  require_matrix(kOperation, "x", x, y.dtype(), y.rows(), 2 * y.cols());
  with_compute_dtype(kOperation, "x", x.dtype(), [&]<class T>(std::type_identity<T>) {
    const auto in = x.values<T>();
    const auto out = y.values<T>();
    for (std::size_t i = 0; i < out.size(); ++i) {
      const Arithmetic<T> gate = widen(in[2 * i]);
      out[i] = narrow<T>(gate * logistic(gate) * widen(in[2 * i + 1]));
    }
  });
}

void swiglu_backward(const TensorView& x, const TensorView& dy, const MutableTensorView& dx) {
  constexpr std::string_view kOperation = "swiglu_backward";
  require_contiguous(kOperation, "dy", dy);
  require_matrix(kOperation, "x", x, dy.dtype(), dy.rows(), 2 * dy.cols());
  require_tensor(kOperation, "dx", dx, x.dtype(), x.shape());
  with_compute_dtype(kOperation, "x", x.dtype(), [&]<class T>(std::type_identity<T>) {
    using A = Arithmetic<T>;
    const auto in = x.values<T>();
    const auto gradient = dy.values<T>();
    const auto out = dx.values<T>();
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      const A gate = widen(in[2 * i]);
      const A up = widen(in[2 * i + 1]);
      const A sigmoid = logistic(gate);
      const A slope = sigmoid * (A{1} + gate * (A{1} - sigmoid));
      out[2 * i] = narrow<T>(widen(gradient[i]) * up * slope);
      out[2 * i + 1] = narrow<T>(widen(gradient[i]) * gate * sigmoid);
    }
  });
}

}  // namespace amaxscope::megatron
