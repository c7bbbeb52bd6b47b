#include "megatron/ops/elementwise.hpp"

#include <bit>
#include <vector>

#include "megatron/counter_hash.hpp"
#include "megatron/ops/compute.hpp"

namespace amaxscope::megatron {

void add(const TensorView& x, const MutableTensorView& y) {
  require_contiguous("add", "y", y);
  require_tensor("add", "x", x, y.dtype(), y.shape());
  with_compute_dtype("add", "y", y.dtype(), [&]<class T>(std::type_identity<T>) {
    const auto in = x.values<T>();
    const auto out = y.values<T>();
    // A sum of two bf16 rounded to fp32 and then to bf16 equals the sum rounded once: 24 >= 2 * 8 + 2 bits.
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = narrow<T>(widen(out[i]) + widen(in[i]));
  });
}

void add_bias(const TensorView& bias, const MutableTensorView& y) {
  require_contiguous("add_bias", "y", y);
  require_tensor("add_bias", "bias", bias, y.dtype(), {y.cols()});
  with_compute_dtype("add_bias", "y", y.dtype(), [&]<class T>(std::type_identity<T>) {
    const auto in = bias.values<T>();
    T* out = y.values<T>().data();
    for (std::int64_t row = 0; row < y.rows(); ++row, out += in.size()) {
      for (std::size_t i = 0; i < in.size(); ++i) out[i] = narrow<T>(widen(out[i]) + widen(in[i]));
    }
  });
}

void bias_gradient(const TensorView& dy, const MutableTensorView& dbias) {
  require_contiguous("bias_gradient", "dy", dy);
  require_tensor("bias_gradient", "dbias", dbias, accumulation_dtype(dy.dtype()), {dy.cols()});
  with_compute_dtype("bias_gradient", "dy", dy.dtype(), [&]<class T>(std::type_identity<T>) {
    const auto out = dbias.values<Arithmetic<T>>();
    std::vector<double> sums(out.size());
    const T* in = dy.values<T>().data();
    for (std::int64_t row = 0; row < dy.rows(); ++row, in += sums.size()) {
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += widen_to_double(in[i]);
    }
    for (std::size_t i = 0; i < sums.size(); ++i) {
      out[i] = static_cast<Arithmetic<T>>(static_cast<double>(out[i]) + sums[i]);
    }
  });
}

void scale(double factor, const MutableTensorView& y) {
  require_contiguous("scale", "y", y);
  with_compute_dtype("scale", "y", y.dtype(), [&]<class T>(std::type_identity<T>) {
    for (T& value : y.values<T>()) value = narrow<T>(widen_to_double(value) * factor);
  });
}

void perturb(std::uint64_t seed, double size, const MutableTensorView& y) {
  require_contiguous("perturb", "y", y);
  with_compute_dtype("perturb", "y", y.dtype(), [&]<class T>(std::type_identity<T>) {
    const auto values = y.values<T>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double value = widen_to_double(values[i]);
      const double r = 2 * uniform(hash_words(seed, i, std::bit_cast<std::uint64_t>(value))) - 1;
      values[i] = narrow<T>(value * (1 + size * r));
    }
  });
}

double unit_roundoff(DType compute) {
  return compute == DType::kF64 ? 0x1p-53 : compute == DType::kF32 ? 0x1p-24 : 0x1p-8;
}

}  // namespace amaxscope::megatron
