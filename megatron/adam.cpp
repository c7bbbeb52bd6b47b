#include "megatron/adam.hpp"

#include <cmath>
#include <type_traits>
#include <utility>

#include "core/error.hpp"

namespace amaxscope::megatron {

namespace {

void require_fraction(std::string_view name, double value) {
  AMAXSCOPE_CHECK(value >= 0 && value < 1, ErrorCode::kUsage,
                  "Adam: {} is {}; allowed is 0 up to, not including, 1", name, value);
}

void require_not_negative(std::string_view name, double value) {
  AMAXSCOPE_CHECK(value >= 0 && std::isfinite(value), ErrorCode::kUsage,
                  "Adam: {} is {}; it must be finite and not negative", name, value);
}

/// What is the same for all elements in one step.
struct StepFactors {
  double learning_rate;
  double first_correction;   ///< 1 / (1 - beta1^t)
  double second_correction;  ///< 1 / (1 - beta2^t)
  double second_kept;        ///< of the second moment: beta2
  double second_renewed;     ///< 1 - beta2
};

/// What a step makes of one element. In double; moments and weights are rounded once when stored.
struct Element {
  double first_moment;
  double second_moment;
  double update;               ///< to be added to the weight
  double normalized_gradient;  ///< g / (sqrt(v) + epsilon)
};

template <class A>
Element stepped(const AdamOptions& options, const StepFactors& factors, A gradient, A first_moment,
                A second_moment, A weight) {
  const auto g = static_cast<double>(gradient);
  const double m = options.beta1 * static_cast<double>(first_moment) + (1 - options.beta1) * g;
  const double v = factors.second_kept * static_cast<double>(second_moment) + factors.second_renewed * g * g;
  const double root = std::sqrt(v * factors.second_correction) + options.epsilon;
  const double direction = m * factors.first_correction / root;
  const double decay = options.weight_decay * static_cast<double>(weight);
  return {m, v, -factors.learning_rate * (direction + decay), g / root};
}

template <class A>
void update(const AdamOptions& options, const StepFactors& factors, std::span<const A> gradient,
            std::span<A> first_moment, std::span<A> second_moment, std::span<A> weight) {
  for (std::size_t i = 0; i < weight.size(); ++i) {
    const Element next = stepped(options, factors, gradient[i], first_moment[i], second_moment[i], weight[i]);
    first_moment[i] = static_cast<A>(next.first_moment);
    second_moment[i] = static_cast<A>(next.second_moment);
    weight[i] = static_cast<A>(static_cast<double>(weight[i]) + next.update);
  }
}

/// Tells the observer what update() will do, and changes nothing.
template <class A>
void preview(const AdamOptions& options, const StepFactors& factors, const Parameter& parameter,
             std::span<const A> first_moment, std::span<const A> second_moment,
             const UpdateObserver& observer) {
  const auto gradient = parameter.gradient.values<A>();
  const auto weight = parameter.master.values<A>();
  Tensor updates(DType::kF32, parameter.master.shape());
  Tensor normalized(DType::kF32, parameter.master.shape());
  for (std::size_t i = 0; i < weight.size(); ++i) {
    const Element next = stepped(options, factors, gradient[i], first_moment[i], second_moment[i], weight[i]);
    updates.values<float>()[i] = static_cast<float>(next.update);
    normalized.values<float>()[i] = static_cast<float>(next.normalized_gradient);
  }
  observer.tell(parameter, updates, normalized);
}

}  // namespace

Adam::Adam(std::vector<Parameter*> parameters, AdamOptions options)
    : parameters_(std::move(parameters)), options_(options) {
  require_fraction("beta1", options.beta1);
  require_fraction("beta2", options.beta2);
  require_not_negative("epsilon", options.epsilon);
  require_not_negative("weight_decay", options.weight_decay);
  require_not_negative("learning_rate", options.learning_rate);
  for (const Parameter* parameter : parameters_) {
    AMAXSCOPE_CHECK(parameter != nullptr && parameter->master.defined(), ErrorCode::kUsage,
                    "Adam: a parameter without values");
    first_moments_.emplace_back(parameter->master.dtype(), parameter->master.shape());
    second_moments_.emplace_back(parameter->master.dtype(), parameter->master.shape());
  }
}

void Adam::step(double learning_rate, bool second_moment_lags, const UpdateObserver& observer) {
  require_not_negative("learning_rate", learning_rate);
  ++steps_;
  const auto t = static_cast<double>(steps_);
  const StepFactors factors{learning_rate, 1 / (1 - std::pow(options_.beta1, t)),
                            1 / (1 - std::pow(options_.beta2, t)), second_moment_lags ? 1.0 : options_.beta2,
                            second_moment_lags ? 0.0 : 1 - options_.beta2};
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Parameter& parameter = *parameters_[i];
    const bool wanted = observer.wants && observer.wants(parameter);
    const auto run = [&]<class A>(std::type_identity<A>) {
      if (wanted) {
        preview<A>(options_, factors, parameter, std::as_const(first_moments_[i]).values<A>(),
                   std::as_const(second_moments_[i]).values<A>(), observer);
      }
      update<A>(options_, factors, std::as_const(parameter.gradient).values<A>(),
                first_moments_[i].values<A>(), second_moments_[i].values<A>(), parameter.master.values<A>());
    };
    parameter.master.dtype() == DType::kF64 ? run(std::type_identity<double>{})
                                            : run(std::type_identity<float>{});
    parameter.refresh_compute();
  }
}

}  // namespace amaxscope::megatron
