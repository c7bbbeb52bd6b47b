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

}  // namespace amaxscope::megatron
