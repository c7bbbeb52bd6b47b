#include "report/sensitivity.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "core/error.hpp"

namespace amaxscope::report {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double element(const TensorView& x, std::size_t i) {
  return x.dtype() == DType::kF64 ? x.values<double>()[i] : static_cast<double>(x.values<float>()[i]);
}

/// The numbers of a step, kept while others are run.
using Kept = std::vector<std::vector<float>>;

Kept kept(const std::vector<StepResult::Part>& parts) {
  Kept values;
  for (const StepResult::Part& part : parts) {
    std::vector<float>& copy = values.emplace_back(static_cast<std::size_t>(part.values.numel()));
    for (std::size_t i = 0; i < copy.size(); ++i) copy[i] = static_cast<float>(element(part.values, i));
  }
  return values;
}

/// Adds this rank's share of |x - h|^2 and |h|^2 of each parameter: two numbers a parameter.
void add_distances(const std::vector<StepResult::Part>& parts, const Kept& reference,
                   std::span<double> sums) {
  AMAXSCOPE_CHECK(parts.size() == reference.size(), ErrorCode::kUsage,
                  "a step has {} parts of a gradient or update, the one before had {}", parts.size(),
                  reference.size());
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const StepResult::Part& part = parts[p];
    AMAXSCOPE_CHECK(static_cast<std::size_t>(part.values.numel()) == reference[p].size() &&
                        2 * part.parameter + 1 < sums.size(),
                    ErrorCode::kUsage,
                    "part {} of a gradient or update, of parameter {}, has {} elements; before it had {}", p,
                    part.parameter, part.values.numel(), reference[p].size());
    double apart = 0;
    double length = 0;
    for (std::size_t i = 0; i < reference[p].size(); ++i) {
      const double own = reference[p][i];
      const double difference = element(part.values, i) - own;
      apart += difference * difference;
      length += own * own;
    }
    sums[2 * part.parameter] += part.share * apart;
    sums[2 * part.parameter + 1] += part.share * length;
  }
}

/// The mean over parameters of |x - h|^2 / |h|^2.
double mean_error(std::span<const double> sums) {
  double total = 0;
  std::size_t counted = 0;
  for (std::size_t i = 0; i < sums.size(); i += 2) {
    if (sums[i + 1] == 0.0) continue;
    total += sums[i] / sums[i + 1];
    ++counted;
  }
  return counted == 0 ? 0.0 : total / static_cast<double>(counted);
}

/// How far a step is from the one in high precision; squared.
struct Distance {
  double loss = 0;
  double gradient = 0;
  double update = 0;
};

double or_infinite(double value) { return std::isfinite(value) ? value : kInfinity; }

double share_that_goes(double with, double all) {
  if (!std::isfinite(all)) return std::isfinite(with) ? 1.0 : 0.0;
  return all == 0.0 ? 0.0 : 1.0 - with / all;
}

double share_alone(double alone, double all) {
  if (!std::isfinite(all)) return std::isfinite(alone) ? 0.0 : 1.0;
  return all == 0.0 ? 0.0 : alone / all;
}

}  // namespace

Sensitivity sense(std::span<const Trial> trials, const StepRunner& run, const SumOverRanks& sum,
                  const std::function<void(std::size_t, std::size_t)>& progress) {
  const std::size_t all = 2 + 2 * trials.size();
  std::size_t done = 0;
  const auto step = [&](const std::string& yaml) {
    StepResult result = run(yaml);
    if (progress) progress(++done, all);
    return result;
  };
  Sensitivity result;
  Kept gradient;
  Kept update;
  {
    const StepResult high = step(everything_in_high_precision());
    result.loss_high_precision = high.loss;
    gradient = kept(high.gradient);
    update = kept(high.update);
  }
  const auto far = [&](const std::string& yaml) {
    const StepResult own = step(yaml);
    const std::size_t words = 2 * own.parameters;
    std::vector<double> sums(2 * words);  // of gradients, then of updates
    add_distances(own.gradient, gradient, std::span(sums).first(words));
    add_distances(own.update, update, std::span(sums).last(words));
    if (sum) sum(sums);
    return Distance{own.loss, or_infinite(mean_error(std::span(sums).first(words))),
                    or_infinite(mean_error(std::span(sums).last(words)))};
  };
  const Distance configured = far("");
  result.loss = configured.loss;
  result.gradient_error = std::sqrt(configured.gradient);
  result.update_error = std::sqrt(configured.update);
  std::map<std::string, std::size_t> order;  // of kinds, as they come
  for (const Trial& trial : trials) {
    order.emplace(trial.kind, order.size());
    const Distance without = far(trial.in_high_precision);
    const Distance alone = far(trial.alone_quantized);
    result.ranked.push_back({.trial = trial,
                             .loss_change = without.loss - configured.loss,
                             .loss_change_alone = alone.loss - result.loss_high_precision,
                             .gradient_goes = share_that_goes(without.gradient, configured.gradient),
                             .gradient_alone = share_alone(alone.gradient, configured.gradient),
                             .update_goes = share_that_goes(without.update, configured.update),
                             .update_alone = share_alone(alone.update, configured.update)});
  }
  std::ranges::stable_sort(result.ranked, [&](const Sensed& a, const Sensed& b) {
    const std::size_t kind_a = order.at(a.trial.kind);
    const std::size_t kind_b = order.at(b.trial.kind);
    return kind_a != kind_b ? kind_a < kind_b
                            : a.gradient_goes + a.gradient_alone > b.gradient_goes + b.gradient_alone;
  });
  return result;
}

}  // namespace amaxscope::report
