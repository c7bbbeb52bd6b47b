#include "runtime/stats/moments_accumulator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/error.hpp"

namespace amaxscope {

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

// Places in the packed words. Minima travel as the complement of their bits, so that one MAX serves all.
enum MaxWord : std::size_t { kMax, kMin, kMaxFinite, kMinFinite, kAmaxFinite, kAminNonzero, kMaxWords };
enum SumWord : std::size_t { kNumel, kNanCount, kInfCount, kNonzero, kSum, kL1, kSumSquares, kSumWords };
enum MomentWord : std::size_t { kM2, kM3, kM4, kMomentWords };

/// The reduced words as numbers.
struct Reduced {
  explicit Reduced(const ReducedStat& in)
      : numel(in.sums[kNumel]),
        nan(in.sums[kNanCount]),
        inf(in.sums[kInfCount]),
        nonzero(in.sums[kNonzero]),
        finite(numel - nan - inf),
        sum(in.sums[kSum]),
        l1(in.sums[kL1]),
        sum_squares(in.sums[kSumSquares]),
        m2(in.moments.empty() ? kNan : in.moments[kM2]),
        m3(in.moments.size() < kMomentWords ? kNan : in.moments[kM3]),
        m4(in.moments.size() < kMomentWords ? kNan : in.moments[kM4]),
        min(from_order_bits(~in.max[kMin])),
        max(from_order_bits(in.max[kMax])),
        min_finite(from_order_bits(~in.max[kMinFinite])),
        max_finite(from_order_bits(in.max[kMaxFinite])),
        amax_finite(std::bit_cast<float>(in.max[kAmaxFinite])),
        amin_nonzero(std::bit_cast<float>(~in.max[kAminNonzero])) {}

  double numel, nan, inf, nonzero, finite;
  double sum, l1, sum_squares, m2, m3, m4;
  double min, max, min_finite, max_finite, amax_finite, amin_nonzero;

  /// What NaN and Inf make of a statistic over all elements; `finite_value` is that of the finite ones.
  [[nodiscard]] double spoiled(double with_inf, double finite_value) const {
    if (nan > 0) return kNan;
    return inf > 0 ? with_inf : finite_value;
  }
  [[nodiscard]] double mean() const {
    const bool both_signs = max == kInf && min == -kInf;
    return spoiled(both_signs ? kNan : (max == kInf ? kInf : -kInf), sum / finite);
  }
};

bool zero_range(const Reduced& r) { return r.finite > 0 && r.amax_finite == 0; }

/// Third or fourth standardised moment; none when nothing varies.
std::optional<double> shape_of(std::string_view name, const Reduced& r) {
  if (r.nan > 0 || r.inf > 0) return kNan;
  if (r.min_finite == r.max_finite || r.m2 == 0) return std::nullopt;
  const double variance = r.m2 / r.finite;
  if (name == "skewness") return r.m3 / r.finite / (variance * std::sqrt(variance));
  return r.m4 / r.finite / (variance * variance) - 3;
}

/// No value when the statistic has none for these elements (numel > 0).
std::optional<double> value_of(std::string_view name, const Reduced& r) {
  if (name == "numel") return r.numel;
  if (name == "nan") return r.nan;
  if (name == "inf") return r.inf;
  if (name == "nonzero") return r.nonzero;
  if (name == "min") return r.nan > 0 ? kNan : r.min;
  if (name == "max") return r.nan > 0 ? kNan : r.max;
  if (name == "cur_amax") return r.spoiled(kInf, r.amax_finite);
  if (name == "mean") return r.mean();
  if (name == "l1_norm") return r.spoiled(kInf, r.l1);
  if (name == "l2_norm") return r.spoiled(kInf, std::sqrt(r.sum_squares));
  if (name == "rms") return r.spoiled(kInf, std::sqrt(r.sum_squares / r.finite));
  if (name == "std") {
    if (r.numel < 2) return std::nullopt;
    return r.spoiled(kNan, std::sqrt(r.m2 / (r.finite - 1)));
  }
  if (name == "skewness" || name == "kurtosis") return shape_of(name, r);
  if (name == "peak_rms") {
    return r.spoiled(kNan, zero_range(r) ? 0.0 : r.amax_finite / std::sqrt(r.sum_squares / r.finite));
  }
  if (r.finite == 0) return std::nullopt;
  if (name == "min_finite") return r.min_finite;
  if (name == "max_finite") return r.max_finite;
  if (name == "amax_finite") return r.amax_finite;
  // dynamic_range
  return zero_range(r) ? 0.0 : std::log2(r.amax_finite) - std::log2(r.amin_nonzero);
}

/// What stays known of a tensor with NaN or Inf, beside the statistics that are spoiled.
void add_finite_values(const Reduced& r, std::vector<StatValue>& out) {
  const auto add = [&](const char* name, double value) {
    if (std::ranges::none_of(out, [&](const StatValue& known) { return known.name == name; })) {
      out.push_back({name, value});
    }
  };
  add("nan", r.nan);
  add("inf", r.inf);
  if (r.finite == 0) return;
  add("min_finite", r.min_finite);
  add("max_finite", r.max_finite);
  add("amax_finite", r.amax_finite);
}

}  // namespace

const std::vector<std::string>& MomentsAccumulator::known_names() {
  static const std::vector<std::string> kNames = {
      "min",           "max",         "mean",     "std",      "l1_norm", "l2_norm", "cur_amax",
      "dynamic_range", "numel",       "nonzero",  "nan",      "inf",     "rms",     "min_finite",
      "max_finite",    "amax_finite", "skewness", "kurtosis", "peak_rms"};
  return kNames;
}

namespace {
bool asks_for(const std::vector<std::string>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}
}  // namespace

MomentsAccumulator::MomentsAccumulator(std::vector<std::string> names)
    : names_(std::move(names)),
      std_(asks_for(names_, "std")),
      order_(asks_for(names_, "skewness") || asks_for(names_, "kurtosis") ? MomentOrder::kFourth
                                                                          : MomentOrder::kSecond) {
  for (const std::string& name : names_) {
    AMAXSCOPE_CHECK(std::ranges::find(known_names(), name) != known_names().end(), ErrorCode::kUsage,
                    "\"{}\" is no statistic of a tensor's moments; there are {}", name,
                    fmt::join(known_names(), ", "));
  }
}

void MomentsAccumulator::feed(const TensorMoments& moments) {
  moments_.merge(moments);
  mark_ran(true);
}

std::string MomentsAccumulator::id() const { return fmt::format("moments {}", fmt::join(names_, " ")); }

void MomentsAccumulator::reset() {
  moments_ = TensorMoments();
  mark_ran(false);
}

std::size_t MomentsAccumulator::max_words() const { return kMaxWords; }
std::size_t MomentsAccumulator::sum_words() const { return kSumWords; }
std::size_t MomentsAccumulator::moment_words() const {
  if (order_ == MomentOrder::kFourth) return kMomentWords;
  return std_ ? 1 : 0;
}

void MomentsAccumulator::pack_max(std::span<std::uint32_t> out) const {
  out[kMax] = order_bits(moments_.max);
  out[kMin] = ~order_bits(moments_.min);
  out[kMaxFinite] = order_bits(moments_.max_finite);
  out[kMinFinite] = ~order_bits(moments_.min_finite);
  out[kAmaxFinite] = std::bit_cast<std::uint32_t>(moments_.amax_finite);
  out[kAminNonzero] = ~std::bit_cast<std::uint32_t>(moments_.amin_nonzero);
}

void MomentsAccumulator::pack_sums(std::span<double> out) const {
  out[kNumel] = static_cast<double>(moments_.numel);
  out[kNanCount] = static_cast<double>(moments_.nan);
  out[kInfCount] = static_cast<double>(moments_.inf);
  out[kNonzero] = static_cast<double>(moments_.nonzero);
  out[kSum] = moments_.sum;
  out[kL1] = moments_.l1;
  out[kSumSquares] = moments_.sum_squares;
}

void MomentsAccumulator::pack_moments(std::span<const double> sums, std::span<double> out) const {
  if (out.empty()) return;
  const auto own = static_cast<double>(moments_.finite());
  const double all = sums[kNumel] - sums[kNanCount] - sums[kInfCount];
  // From the own mean to the common one.
  const CentredMoments common = recentred(moments_, own > 0 ? moments_.mean - sums[kSum] / all : 0.0);
  out[kM2] = common.m2;
  if (out.size() < kMomentWords) return;
  out[kM3] = common.m3;
  out[kM4] = common.m4;
}

std::vector<StatValue> MomentsAccumulator::values(const ReducedStat& reduced) const {
  const Reduced r(reduced);
  if (r.numel == 0) return {{"numel", 0.0}};
  std::vector<StatValue> out;
  for (const std::string& name : names_) {
    if (const std::optional<double> value = value_of(name, r)) {
      out.push_back({name, *value});
      if ((name == "dynamic_range" || name == "peak_rms") && *value == 0 && zero_range(r))
        out.back().flags = {"zero"};
    }
  }
  if (r.nan > 0 || r.inf > 0) add_finite_values(r, out);
  return out;
}

}  // namespace amaxscope
