#include "report/rounding_noise.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace amaxscope::report {

namespace {

struct Recipe {
  std::string_view name;
  Arithmetic arithmetic;
};
constexpr std::array kRecipes = {
    Recipe{"none", Arithmetic::kHighPrecision},   Recipe{"delayed", Arithmetic::kTensorScales},
    Recipe{"current", Arithmetic::kTensorScales}, Recipe{"mxfp8", Arithmetic::kBlockScales},
    Recipe{"block", Arithmetic::kBlockScales},    Recipe{"nvfp4", Arithmetic::kNvfp4}};

/// What is left of a perturbation where none was seen: the tensor itself is equal, its sum is taken in
/// another order.
double floor_of(Precision precision, const std::string& tensor, const std::string& base, Measure measure) {
  const double rounding = precision.bf16 ? 0x1p-8 : 0x1p-24;
  switch (measure) {
    case Measure::kExact:
    case Measure::kNone:
      return 0;
    case Measure::kOfTotal:
      return 0x1p-12;
    case Measure::kPlain:
      // A percentage moves in steps of one element: of 4096 in the smallest matrices worth the name, of 512
      // in vectors, which only the optimizer's tensors are.
      if (base.ends_with('%')) return 100 * (kind_of(tensor) == "optimizer" ? 0x1p-9 : 0x1p-12);
      return rounding;
    default:
      return rounding;
  }
}

void widen(const std::vector<RunInfo>& runs, Precision& precision) {
  const auto option = [&](const char* name) -> std::string {
    if (runs.empty()) return {};
    const auto found = runs.back().options.find(name);
    return found != runs.back().options.end() ? found->second : std::string();
  };
  if (option("dtype") != "f32") precision.bf16 = true;
  const std::string recipe = option("recipe");
  const auto found = std::ranges::find(kRecipes, recipe, &Recipe::name);
  if (found != kRecipes.end()) {
    precision.used[static_cast<std::size_t>(found->arithmetic)] = true;
  } else {
    precision.used.fill(true);
  }
}

}  // namespace

Precision precision_of(const std::vector<RunInfo>& a, const std::vector<RunInfo>& b) {
  Precision precision;
  widen(a, precision);
  widen(b, precision);
  return precision;
}

std::string to_string(const Precision& precision) {
  static constexpr std::array<std::string_view, kArithmetics> kNames = {
      "high precision", "scales for each tensor", "scales for each block", "nvfp4"};
  std::string text = precision.bf16 ? "bf16" : "f32";
  for (std::size_t i = 0; i < kArithmetics; ++i) {
    if (precision.used[i]) text += fmt::format(", {}", kNames[i]);
  }
  return text;
}

void RoundingNoise::begin_step(std::int64_t iteration) {
  if (iteration < iteration_) steps_ = 0;
  iteration_ = iteration;
  if (++steps_ <= kSettledAfter) settled_ = std::max(settled_.value_or(iteration), iteration);
}

void RoundingNoise::measure(const std::string& tensor, const std::string& base, double distance) {
  auto& largest = largest_[{tensor, base}];
  largest.try_emplace(iteration_, 0.0);
  if (!std::isfinite(distance)) return;
  double& here = largest[iteration_];
  here = std::max(here, distance);
}

double RoundingNoise::tolerance(const std::string& tensor, const std::string& base, Measure measure,
                                std::int64_t iteration) const {
  double noise = 0;
  if (measured()) {
    const auto found = largest_.find({tensor, base});
    const std::int64_t until = std::max(iteration, settled_.value_or(iteration));
    if (found != largest_.end()) {
      for (const auto& [at, distance] : found->second) {
        if (at <= until) noise = std::max(noise, distance);
      }
    }
  } else {
    noise = tabulated_noise(precision_, tensor, base, measure, iteration);
  }
  return kMargin * std::max(noise, floor_of(precision_, tensor, base, measure));
}

std::map<std::pair<std::string, std::string>, double> RoundingNoise::largest() const {
  std::map<std::pair<std::string, std::string>, double> all;
  for (const auto& [key, largest] : largest_) {
    double& most = all[key];
    for (const auto& [at, distance] : largest) most = std::max(most, distance);
  }
  return all;
}

}  // namespace amaxscope::report
