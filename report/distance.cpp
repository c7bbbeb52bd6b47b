#include "report/distance.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace amaxscope::report {

namespace {

constexpr std::array<std::string_view, 5> kPrefixes = {"fp8_delayed_scaling_", "fp8_current_scaling_",
                                                       "fp8_block_scaling_", "mxfp8_", "nvfp4_"};
constexpr std::string_view kDirection = "_columnwise";
constexpr std::string_view kHistogram = "histogram_";

template <std::size_t N>
bool is_one_of(std::string_view name, const std::array<std::string_view, N>& names) {
  return std::ranges::find(names, name) != names.end();
}

constexpr std::array<std::string_view, 12> kLinear = {"cur_amax",   "amax_finite", "max",  "min",
                                                      "max_finite", "min_finite",  "std",  "rms",
                                                      "l1_norm",    "l2_norm",     "mean", "result_norm"};
constexpr std::array<std::string_view, 4> kAroundZero = {"mean", "min", "min_finite", "max"};
constexpr std::array<std::string_view, 13> kPlain = {"sqnr",
                                                     "cosine",
                                                     "skewness",
                                                     "kurtosis",
                                                     "dynamic_range",
                                                     "headroom_bits",
                                                     "scale_spread",
                                                     "rounding_mean",
                                                     "rounding_z",
                                                     "rounding_correlation",
                                                     "gradient_bias",
                                                     "amax_log2_slope",
                                                     "max_blockwise_dynamic_range"};
constexpr std::array<std::string_view, 2> kCounted = {"numel", "inf"};

/// What the tensor's elements are like in size: the first of these that both records have.
double spread(const std::map<std::string, double>& a, const std::map<std::string, double>& b) {
  for (const char* name : {"rms", "std", "amax_finite", "cur_amax"}) {
    const auto in_a = a.find(name);
    const auto in_b = b.find(name);
    if (in_a == a.end() || in_b == b.end()) continue;
    const double size = std::max(std::abs(in_a->second), std::abs(in_b->second));
    if (std::isfinite(size) && size > 0) return size;
  }
  return 0;
}

double total(const std::map<std::string, double>& stats) {
  double sum = 0;
  for (auto at = stats.lower_bound(std::string(kHistogram)); at != stats.end(); ++at) {
    if (!at->first.starts_with(kHistogram)) break;
    if (std::isfinite(at->second)) sum += at->second;
  }
  return sum;
}

}  // namespace

std::string base_name(const std::string& stat) {
  std::string_view name = stat;
  if (name.starts_with(kHistogram)) return "histogram";
  for (const std::string_view prefix : kPrefixes) {
    if (!name.starts_with(prefix)) continue;
    name.remove_prefix(prefix.size());
    break;
  }
  if (name.ends_with(kDirection)) name.remove_suffix(kDirection.size());
  // "outlier_row_2_energy%", "worst_block_3_error%": the same statistic of the next in order.
  std::string base(name);
  std::erase_if(base, [](char c) { return c >= '0' && c <= '9'; });
  const bool numbered = name.starts_with("outlier_channel_") || name.starts_with("outlier_row_") ||
                        name.starts_with("worst_block_");
  return base.empty() || !numbered ? std::string(name) : base;
}

Measure measure_of(std::string_view base) {
  if (base == "histogram") return Measure::kOfTotal;
  if (base.ends_with("_id") || base.starts_with("worst_block_") || base.ends_with("_due_steps") ||
      base.ends_with("_since") || base.ends_with("_tp_rank") || base == "scale_age" ||
      base == "amax_reversals" || base == "steps_to_saturation") {
    return Measure::kNone;
  }
  if (base.ends_with('%') || is_one_of(base, kPlain)) return Measure::kPlain;
  if (is_one_of(base, kCounted) || base == "nan") return Measure::kExact;
  if (is_one_of(base, kAroundZero)) return Measure::kOfSpread;
  return Measure::kRelative;
}

int degree_of(std::string_view base) {
  if (is_one_of(base, kLinear) || base == "max_error" || base == "grad_norm" ||
      base.starts_with("scale_inv_")) {
    return 1;
  }
  return base == "mse" ? 2 : 0;
}

double distance(Measure measure, double a, double b, const std::map<std::string, double>& stats_a,
                const std::map<std::string, double>& stats_b) {
  constexpr double kFar = std::numeric_limits<double>::infinity();
  if (measure == Measure::kNone || a == b || (std::isnan(a) && std::isnan(b))) return 0;
  if (!std::isfinite(a) || !std::isfinite(b)) return kFar;
  const double difference = std::abs(a - b);
  switch (measure) {
    case Measure::kExact:
      return kFar;
    case Measure::kPlain:
      return difference;
    case Measure::kOfTotal: {
      const double elements = std::max(total(stats_a), total(stats_b));
      return elements > 0 ? difference / elements : kFar;
    }
    case Measure::kOfSpread: {
      const double size = spread(stats_a, stats_b);
      if (size > 0) return difference / size;
      break;
    }
    default:
      break;
  }
  return difference / std::max(std::abs(a), std::abs(b));
}

}  // namespace amaxscope::report
