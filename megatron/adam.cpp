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

/// Calculated in double; moments and weights are rounded once when stored.
template <class A>
void update(const AdamOptions& options, const StepFactors& factors, std::span<const A> gradient,
            std::span<A> first_moment, std::span<A> second_moment, std::span<A> weight) {
  for (std::size_t i = 0; i < weight.size(); ++i) {
    const auto g = static_cast<double>(gradient[i]);
    const auto w = static_cast<double>(weight[i]);
    const double m = options.beta1 * static_cast<double>(first_moment[i]) + (1 - options.beta1) * g;
    const double v =
        factors.second_kept * static_cast<double>(second_moment[i]) + factors.second_renewed * g * g;
    const double direction =
        m * factors.first_correction / (std::sqrt(v * factors.second_correction) + options.epsilon);
    first_moment[i] = static_cast<A>(m);
    second_moment[i] = static_cast<A>(v);
    weight[i] = static_cast<A>(w - factors.learning_rate * (direction + options.weight_decay * w));
  }
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

void Adam::step(double learning_rate, bool second_moment_lags) {
  require_not_negative("learning_rate", learning_rate);
  ++steps_;
  const auto t = static_cast<double>(steps_);
  const StepFactors factors{learning_rate, 1 / (1 - std::pow(options_.beta1, t)),
                            1 / (1 - std::pow(options_.beta2, t)), second_moment_lags ? 1.0 : options_.beta2,
                            second_moment_lags ? 0.0 : 1 - options_.beta2};
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Parameter& parameter = *parameters_[i];
    const auto run = [&]<class A>(std::type_identity<A>) {
      update<A>(options_, factors, std::as_const(parameter.gradient).values<A>(),
                first_moments_[i].values<A>(), second_moments_[i].values<A>(), parameter.master.values<A>());
    };
    parameter.master.dtype() == DType::kF64 ? run(std::type_identity<double>{})
                                            : run(std::type_identity<float>{});
    parameter.refresh_compute();
  }
}

}  // namespace amaxscope::megatron
