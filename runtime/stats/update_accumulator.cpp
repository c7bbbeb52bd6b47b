#include "runtime/stats/update_accumulator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "core/error.hpp"
#include "kernels/tensor_stats.hpp"

namespace amaxscope {

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

enum SumWord : std::size_t {
  kNonfinite,
  kNonzero,
  kLost,
  kUpdateSquares,
  kWeightSquares,
  kGradientCount,
  kGradientNonfinite,
  kGradientSquares,
  kWithoutWeight,
  kWithoutGradient,
  kSumWords
};

std::optional<double> value_of(std::string_view name, std::span<const double> sums) {
  if (name == "adam_ratio") {
    if (sums[kGradientNonfinite] > 0) return kNan;
    if (sums[kGradientCount] == 0) return std::nullopt;
    return std::sqrt(sums[kGradientSquares] / sums[kGradientCount]);
  }
  if (name == "update_ratio") {
    if (sums[kNonfinite] > 0) return kNan;
    if (sums[kWeightSquares] == 0) return std::nullopt;
    return std::sqrt(sums[kUpdateSquares] / sums[kWeightSquares]);
  }
  if (sums[kNonzero] == 0) return std::nullopt;
  return 100 * sums[kLost] / sums[kNonzero];
}

}  // namespace

const std::vector<std::string>& UpdateAccumulator::known_names() {
  static const std::vector<std::string> kNames = {"update_ratio", "lost_updates%", "adam_ratio"};
  return kNames;
}

UpdateAccumulator::UpdateAccumulator(std::vector<std::string> names) : names_(std::move(names)) {
  for (const std::string& name : names_) {
    AMAXSCOPE_CHECK(std::ranges::find(known_names(), name) != known_names().end(), ErrorCode::kUsage,
                    "\"{}\" is no statistic of an update; there are {}", name,
                    fmt::join(known_names(), ", "));
  }
}

void UpdateAccumulator::feed(const TensorView& update, const TensorView* weight,
                             const TensorView* normalized_gradient) {
  mark_ran(true);
  without_weight_ = without_weight_ || weight == nullptr;
  without_gradient_ = without_gradient_ || normalized_gradient == nullptr;
  if (weight != nullptr) stats_ += update_stats(*weight, update);
  if (normalized_gradient == nullptr || !asks_for("adam_ratio")) return;
  const TensorMoments moments = tensor_stats(*normalized_gradient);
  gradient_count_ += static_cast<double>(moments.finite());
  gradient_nonfinite_ += static_cast<double>(moments.nan + moments.inf);
  gradient_squares_ += moments.sum_squares;
}

std::string UpdateAccumulator::id() const { return fmt::format("update {}", fmt::join(names_, " ")); }

void UpdateAccumulator::reset() {
  stats_ = {};
  without_weight_ = without_gradient_ = false;
  gradient_count_ = gradient_nonfinite_ = gradient_squares_ = 0;
  mark_ran(false);
}

std::size_t UpdateAccumulator::sum_words() const { return kSumWords; }

void UpdateAccumulator::pack_sums(std::span<double> out) const {
  out[kNonfinite] = static_cast<double>(stats_.nonfinite);
  out[kNonzero] = static_cast<double>(stats_.nonzero);
  out[kLost] = static_cast<double>(stats_.lost);
  out[kUpdateSquares] = stats_.update_squares;
  out[kWeightSquares] = stats_.weight_squares;
  out[kGradientCount] = gradient_count_;
  out[kGradientNonfinite] = gradient_nonfinite_;
  out[kGradientSquares] = gradient_squares_;
  out[kWithoutWeight] = without_weight_ ? 1.0 : 0.0;
  out[kWithoutGradient] = without_gradient_ ? 1.0 : 0.0;
}

bool UpdateAccumulator::asks_for(std::string_view name) const {
  return std::ranges::find(names_, name) != names_.end();
}

void UpdateAccumulator::advance(const ReducedStat& reduced, std::int64_t /*iteration*/) {
  if (warned_) return;
  const bool no_weight =
      reduced.sums[kWithoutWeight] > 0 && (asks_for("update_ratio") || asks_for("lost_updates%"));
  const bool no_gradient = reduced.sums[kWithoutGradient] > 0 && asks_for("adam_ratio");
  warned_ = no_weight || no_gradient;
  if (no_weight) {
    warnings_.emplace_back(
        "update_ratio and lost_updates% need the weight; hand in both with observe_update");
  }
  if (no_gradient) warnings_.emplace_back("adam_ratio needs g / sqrt(v), which observe_update was not given");
}

std::vector<std::string> UpdateAccumulator::take_warnings() { return std::exchange(warnings_, {}); }

std::vector<StatValue> UpdateAccumulator::values(const ReducedStat& reduced) const {
  std::vector<StatValue> out;
  for (const std::string& name : names_) {
    if (const std::optional<double> value = value_of(name, reduced.sums)) out.push_back({name, *value});
  }
  return out;
}

}  // namespace amaxscope
