#include "megatron/ops/routing.hpp"

#include <algorithm>
#include <cmath>

#include "megatron/ops/compute.hpp"

namespace amaxscope::megatron {

namespace {

std::size_t extent(std::int64_t count) { return static_cast<std::size_t>(count); }

std::size_t choice_of(const Routing& routing, std::size_t token, std::size_t k) {
  return token * extent(routing.top_k) + k;
}

double probability_of(const Routing& routing, std::size_t token, std::size_t choice) {
  return routing.probabilities[token * routing.rows.size() + extent(routing.chosen[choice])];
}

/// The softmax of a row, and its top_k largest members.
void decide(std::span<const double> logits, std::span<double> probabilities, std::span<std::int32_t> chosen) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (std::size_t e = 0; e < logits.size(); ++e) sum += probabilities[e] = std::exp(logits[e] - largest);
  for (double& probability : probabilities) probability /= sum;
  std::vector<bool> taken(logits.size());
  for (std::int32_t& choice : chosen) {
    std::size_t best = logits.size();
    for (std::size_t e = 0; e < logits.size(); ++e) {
      if (!taken[e] && (best == logits.size() || logits[e] > logits[best])) best = e;
    }
    taken[best] = true;
    choice = static_cast<std::int32_t>(best);
  }
}

/// Where each choice's row lies when rows are ordered by expert, then by token.
void order_rows(Routing& routing) {
  for (const std::int32_t expert : routing.chosen) ++routing.rows[extent(expert)];
  std::vector<std::int64_t> next(routing.rows.size());
  for (std::size_t e = 1; e < next.size(); ++e) next[e] = next[e - 1] + routing.rows[e - 1];
  for (const std::int32_t expert : routing.chosen) routing.row_of_choice.push_back(next[extent(expert)]++);
}

void require_rows(std::string_view operation, std::string_view name, const Routing& routing,
                  const TensorView& tensor) {
  require_matrix(operation, name, tensor, tensor.dtype(), routing.tokens() * routing.top_k, tensor.cols());
}

}  // namespace

Routing route(const TensorView& x, const TensorView& weight, std::int64_t top_k) {
  constexpr std::string_view kOperation = "route";
  require_contiguous(kOperation, "x", x);
  require_matrix(kOperation, "weight", weight, x.dtype(), weight.rows(), x.cols());
  AMAXSCOPE_CHECK(top_k >= 1 && top_k <= weight.rows(), ErrorCode::kTensor,
                  "{}: top_k {} of {} experts; allowed is 1 to all of them", kOperation, top_k,
                  weight.rows());
  const std::size_t experts = extent(weight.rows());
  const std::size_t tokens = extent(x.rows());
  const std::size_t width = extent(x.cols());
  Routing routing;
  routing.top_k = top_k;
  routing.logits = Tensor(accumulation_dtype(x.dtype()), {x.rows(), weight.rows()});
  routing.probabilities.resize(tokens * experts);
  routing.chosen.resize(tokens * extent(top_k));
  routing.rows.resize(experts);
  with_compute_dtype(kOperation, "x", x.dtype(), [&]<class T>(std::type_identity<T>) {
    const T* row = x.values<T>().data();
    const T* const all_weights = weight.values<T>().data();
    const auto noted = routing.logits.template values<Arithmetic<T>>();
    std::vector<double> logits(experts);
    for (std::size_t t = 0; t < tokens; ++t, row += width) {
      for (std::size_t e = 0; e < experts; ++e) {
        const T* const of_expert = all_weights + e * width;
        double sum = 0;
        for (std::size_t h = 0; h < width; ++h)
          sum += widen_to_double(row[h]) * widen_to_double(of_expert[h]);
        logits[e] = sum;
        noted[t * experts + e] = static_cast<Arithmetic<T>>(sum);
      }
      decide(logits, std::span(routing.probabilities).subspan(t * experts, experts),
             std::span(routing.chosen).subspan(t * extent(top_k), extent(top_k)));
    }
  });
  order_rows(routing);
  return routing;
}

// With p the softmax and g the gradient with respect to it: dlogit_e = p_e (g_e - sum over j of p_j g_j).
std::vector<double> route_backward(const Routing& routing, const TensorView& x, const TensorView& weight,
                                   std::span<const double> dprobabilities, const MutableTensorView& dweight) {
  constexpr std::string_view kOperation = "route_backward";
  require_matrix(kOperation, "x", x, x.dtype(), routing.tokens(), weight.cols());
  require_tensor(kOperation, "dweight", dweight, accumulation_dtype(x.dtype()), weight.shape());
  const std::size_t experts = routing.rows.size();
  const std::size_t width = extent(x.cols());
  std::vector<double> dx(extent(x.numel()));
  with_compute_dtype(kOperation, "x", x.dtype(), [&]<class T>(std::type_identity<T>) {
    const T* row = x.values<T>().data();
    const T* const all_weights = weight.values<T>().data();
    std::vector<double> sums(experts * width);
    for (std::size_t t = 0; t < extent(routing.tokens()); ++t, row += width) {
      std::vector<double> gradient(experts);
      double mean = 0;
      for (std::size_t k = 0; k < extent(routing.top_k); ++k) {
        const std::size_t choice = choice_of(routing, t, k);
        gradient[extent(routing.chosen[choice])] = dprobabilities[choice];
        mean += probability_of(routing, t, choice) * dprobabilities[choice];
      }
      for (std::size_t e = 0; e < experts; ++e) {
        const double dlogit = routing.probabilities[t * experts + e] * (gradient[e] - mean);
        for (std::size_t h = 0; h < width; ++h) {
          sums[e * width + h] += dlogit * widen_to_double(row[h]);
          dx[t * width + h] += dlogit * widen_to_double(all_weights[e * width + h]);
        }
      }
    }
    const auto total = dweight.template values<Arithmetic<T>>();
    for (std::size_t i = 0; i < total.size(); ++i)
      total[i] = static_cast<Arithmetic<T>>(static_cast<double>(total[i]) + sums[i]);
  });
  return dx;
}

Tensor dispatch(const Routing& routing, const TensorView& x) {
  constexpr std::string_view kOperation = "dispatch";
  require_matrix(kOperation, "x", x, x.dtype(), routing.tokens(), x.cols());
  Tensor rows(x.dtype(), {routing.tokens() * routing.top_k, x.cols()});
  with_compute_dtype(kOperation, "x", x.dtype(), [&]<class T>(std::type_identity<T>) {
    const T* const in = x.values<T>().data();
    T* const out = rows.values<T>().data();
    for (std::size_t choice = 0; choice < routing.row_of_choice.size(); ++choice) {
      const auto token = static_cast<std::int64_t>(choice) / routing.top_k;
      std::copy_n(in + token * x.cols(), x.cols(), out + routing.row_of_choice[choice] * x.cols());
    }
  });
  return rows;
}

Tensor dispatch_backward(const Routing& routing, const TensorView& dy, std::span<const double> extra) {
  constexpr std::string_view kOperation = "dispatch_backward";
  require_rows(kOperation, "dy", routing, dy);
  const std::size_t width = extent(dy.cols());
  Tensor dx(dy.dtype(), {routing.tokens(), dy.cols()});
  with_compute_dtype(kOperation, "dy", dy.dtype(), [&]<class T>(std::type_identity<T>) {
    const T* const in = dy.values<T>().data();
    T* const out = dx.values<T>().data();
    for (std::size_t t = 0; t < extent(routing.tokens()); ++t) {
      for (std::size_t h = 0; h < width; ++h) {
        double sum = extra[t * width + h];
        for (std::size_t k = 0; k < extent(routing.top_k); ++k) {
          sum += widen_to_double(in[extent(routing.row_of_choice[choice_of(routing, t, k)]) * width + h]);
        }
        out[t * width + h] = narrow<T>(sum);
      }
    }
  });
  return dx;
}

Tensor combine(const Routing& routing, const TensorView& x) {
  constexpr std::string_view kOperation = "combine";
  require_rows(kOperation, "x", routing, x);
  const std::size_t width = extent(x.cols());
  Tensor y(x.dtype(), {routing.tokens(), x.cols()});
  with_compute_dtype(kOperation, "x", x.dtype(), [&]<class T>(std::type_identity<T>) {
    const T* const in = x.values<T>().data();
    T* const out = y.values<T>().data();
    for (std::size_t t = 0; t < extent(routing.tokens()); ++t) {
      for (std::size_t h = 0; h < width; ++h) {
        double sum = 0;
        for (std::size_t k = 0; k < extent(routing.top_k); ++k) {
          const std::size_t choice = choice_of(routing, t, k);
          sum += probability_of(routing, t, choice) *
                 widen_to_double(in[extent(routing.row_of_choice[choice]) * width + h]);
        }
        out[t * width + h] = narrow<T>(sum);
      }
    }
  });
  return y;
}

CombineGradients combine_backward(const Routing& routing, const TensorView& x, const TensorView& dy) {
  constexpr std::string_view kOperation = "combine_backward";
  require_rows(kOperation, "x", routing, x);
  require_matrix(kOperation, "dy", dy, x.dtype(), routing.tokens(), x.cols());
  const std::size_t width = extent(x.cols());
  CombineGradients result{Tensor(x.dtype(), {x.rows(), x.cols()}),
                          std::vector<double>(routing.row_of_choice.size())};
  with_compute_dtype(kOperation, "x", x.dtype(), [&]<class T>(std::type_identity<T>) {
    const T* const values = x.values<T>().data();
    const T* const gradients = dy.values<T>().data();
    T* const out = result.dx.values<T>().data();
    for (std::size_t choice = 0; choice < routing.row_of_choice.size(); ++choice) {
      const std::size_t token = choice / extent(routing.top_k);
      const std::size_t row = extent(routing.row_of_choice[choice]);
      const double probability = probability_of(routing, token, choice);
      for (std::size_t h = 0; h < width; ++h) {
        const double gradient = widen_to_double(gradients[token * width + h]);
        out[row * width + h] = narrow<T>(probability * gradient);
        result.dprobabilities[choice] += widen_to_double(values[row * width + h]) * gradient;
      }
    }
  });
  return result;
}

}  // namespace amaxscope::megatron
