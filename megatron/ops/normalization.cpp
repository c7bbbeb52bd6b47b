#include "megatron/ops/normalization.hpp"

#include <cmath>
#include <vector>

#include "megatron/ops/compute.hpp"

namespace amaxscope::megatron {

namespace {

struct Row {
  double mean = 0;
  double reciprocal_std = 0;
};

/// Two passes: a sum of squares minus the squared mean would cancel when the mean is large against the
/// spread.
template <class T>
Row row_moments(NormKind kind, const T* x, std::int64_t width, double epsilon) {
  const auto count = static_cast<double>(width);
  Row row;
  if (kind == NormKind::kLayerNorm) {
    for (std::int64_t i = 0; i < width; ++i) row.mean += widen_to_double(x[i]);
    row.mean /= count;
  }
  double squares = 0;
  for (std::int64_t i = 0; i < width; ++i) {
    const double centred = widen_to_double(x[i]) - row.mean;
    squares += centred * centred;
  }
  row.reciprocal_std = 1.0 / std::sqrt(squares / count + epsilon);
  return row;
}

/// dx = (g - mean(g) - xhat * mean(g * xhat)) / std with g = dy * weight; RMSNorm has no mean(g) term.
template <class T>
class RowGradient {
 public:
  RowGradient(NormKind kind, const T* weight, std::int64_t width)
      : kind_(kind),
        weight_(weight),
        normalized_(static_cast<std::size_t>(width)),
        scaled_(normalized_.size()) {}

  void run(const Row& row, const T* x, const T* dy, T* dx, double* weight_sums, double* bias_sums) {
    const std::size_t width = normalized_.size();
    double sum = 0;
    double product = 0;
    for (std::size_t i = 0; i < width; ++i) {
      const double gradient = widen_to_double(dy[i]);
      normalized_[i] = (widen_to_double(x[i]) - row.mean) * row.reciprocal_std;
      scaled_[i] = gradient * widen_to_double(weight_[i]);
      weight_sums[i] += gradient * normalized_[i];
      bias_sums[i] += gradient;
      sum += scaled_[i];
      product += scaled_[i] * normalized_[i];
    }
    const auto count = static_cast<double>(width);
    const double mean = kind_ == NormKind::kLayerNorm ? sum / count : 0.0;
    const double projection = product / count;
    for (std::size_t i = 0; i < width; ++i) {
      dx[i] = narrow<T>((scaled_[i] - mean - normalized_[i] * projection) * row.reciprocal_std);
    }
  }

 private:
  NormKind kind_;
  const T* weight_;
  std::vector<double> normalized_;
  std::vector<double> scaled_;
};

template <class A>
void add_sums(const std::vector<double>& sums, const MutableTensorView& gradient) {
  const auto out = gradient.values<A>();
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<A>(static_cast<double>(out[i]) + sums[i]);
}

}  // namespace

NormSaved norm_forward(NormKind kind, const TensorView& x, const TensorView& weight, const TensorView& bias,
                       double epsilon, const MutableTensorView& y) {
  constexpr std::string_view kOperation = "norm_forward";
  const std::int64_t width = x.cols();
  const bool biased = kind == NormKind::kLayerNorm;
  require_contiguous(kOperation, "x", x);
  require_tensor(kOperation, "weight", weight, x.dtype(), {width});
  if (biased) require_tensor(kOperation, "bias", bias, x.dtype(), {width});
  require_tensor(kOperation, "y", y, x.dtype(), x.shape());
  NormSaved saved{Tensor(DType::kF64, {x.rows()}), Tensor(DType::kF64, {x.rows()})};
  with_compute_dtype(kOperation, "x", x.dtype(), [&]<class T>(std::type_identity<T>) {
    const T* in = x.values<T>().data();
    const T* gain = weight.values<T>().data();
    const T* shift = biased ? bias.values<T>().data() : nullptr;
    T* out = y.values<T>().data();
    const auto means = saved.mean.values<double>();
    const auto reciprocals = saved.reciprocal_std.values<double>();
    for (std::size_t r = 0; r < means.size(); ++r, in += width, out += width) {
      const Row row = row_moments(kind, in, width, epsilon);
      means[r] = row.mean;
      reciprocals[r] = row.reciprocal_std;
      for (std::int64_t i = 0; i < width; ++i) {
        const double normalized = (widen_to_double(in[i]) - row.mean) * row.reciprocal_std;
        const double value = normalized * widen_to_double(gain[i]);
        out[i] = narrow<T>(biased ? value + widen_to_double(shift[i]) : value);
      }
    }
  });
  return saved;
}

void norm_backward(NormKind kind, const TensorView& x, const TensorView& weight, const NormSaved& saved,
                   const TensorView& dy, const MutableTensorView& dx, const MutableTensorView& dweight,
                   const MutableTensorView& dbias) {
  constexpr std::string_view kOperation = "norm_backward";
  const std::int64_t width = x.cols();
  const bool biased = kind == NormKind::kLayerNorm;
  require_contiguous(kOperation, "x", x);
  require_tensor(kOperation, "weight", weight, x.dtype(), {width});
  require_tensor(kOperation, "saved.mean", saved.mean, DType::kF64, {x.rows()});
  require_tensor(kOperation, "saved.reciprocal_std", saved.reciprocal_std, DType::kF64, {x.rows()});
  require_tensor(kOperation, "dy", dy, x.dtype(), x.shape());
  require_tensor(kOperation, "dx", dx, x.dtype(), x.shape());
  require_tensor(kOperation, "dweight", dweight, accumulation_dtype(x.dtype()), {width});
  if (biased) require_tensor(kOperation, "dbias", dbias, accumulation_dtype(x.dtype()), {width});
  with_compute_dtype(kOperation, "x", x.dtype(), [&]<class T>(std::type_identity<T>) {
    const T* in = x.values<T>().data();
    const T* gradient = dy.values<T>().data();
    T* out = dx.values<T>().data();
    const auto means = saved.mean.values<double>();
    const auto reciprocals = saved.reciprocal_std.values<double>();
    std::vector<double> weight_sums(static_cast<std::size_t>(width));
    std::vector<double> bias_sums(weight_sums.size());
    RowGradient<T> row(kind, weight.values<T>().data(), width);
    for (std::size_t r = 0; r < means.size(); ++r, in += width, gradient += width, out += width) {
      row.run({means[r], reciprocals[r]}, in, gradient, out, weight_sums.data(), bias_sums.data());
    }
    add_sums<Arithmetic<T>>(weight_sums, dweight);
    if (biased) add_sums<Arithmetic<T>>(bias_sums, dbias);
  });
}

}  // namespace amaxscope::megatron
