#include "runtime/stats/magnitude_accumulators.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace amaxscope {

namespace {

constexpr std::size_t kBins = ExponentHistogram::kBins;
enum HistogramWord : std::size_t { kZero = kBins, kNanCount, kInfCount, kHistogramWords };
enum OutlierWord : std::size_t { kFinite, kSumSquares, kOutlierWords };

int exponent_of(std::size_t bin) { return ExponentHistogram::kLowest + static_cast<int>(bin); }

}  // namespace

void HistogramAccumulator::feed(const TensorView& x) {
  add_exponents(x, counts_);
  mark_ran(true);
}

std::string HistogramAccumulator::id() const { return fmt::format("histogram {}", reported_); }

void HistogramAccumulator::reset() {
  counts_ = {};
  mark_ran(false);
}

std::size_t HistogramAccumulator::sum_words() const { return kHistogramWords; }

void HistogramAccumulator::pack_sums(std::span<double> out) const {
  for (std::size_t i = 0; i < kBins; ++i) out[i] = static_cast<double>(counts_.bins[i]);
  out[kZero] = static_cast<double>(counts_.zero);
  out[kNanCount] = static_cast<double>(counts_.nan);
  out[kInfCount] = static_cast<double>(counts_.inf);
}

std::vector<StatValue> HistogramAccumulator::values(const ReducedStat& reduced) const {
  const std::span<const double> sums = reduced.sums;
  std::vector<StatValue> out = {{"histogram_zero", sums[kZero]},
                                {"histogram_nan", sums[kNanCount]},
                                {"histogram_inf", sums[kInfCount]}};
  std::size_t end = kBins;  // one past the highest bin that holds anything
  while (end > 0 && sums[end - 1] == 0) --end;
  const std::size_t first = end - std::min(end, static_cast<std::size_t>(reported_));
  double below = 0;
  for (std::size_t i = 0; i < first; ++i) below += sums[i];
  if (below > 0) {
    out.push_back(
        {.name = fmt::format("histogram_below_2^{}", exponent_of(first)), .value = below, .detail = true});
  }
  for (std::size_t i = first; i < end; ++i) {
    if (sums[i] == 0) continue;
    out.push_back({.name = fmt::format("histogram_2^{}", exponent_of(i)), .value = sums[i], .detail = true});
  }
  return out;
}

void OutlierAccumulator::feed(const TensorMoments& moments, const TensorView& x) {
  mark_ran(true);
  finite_ += moments.finite();
  sum_squares_ += moments.sum_squares;
  if (moments.finite() == 0) return;
  magnitudes_.resize(kMagnitudeBuckets);
  add_magnitudes(x, magnitudes_);
}

std::string OutlierAccumulator::id() const { return fmt::format("outliers {}", threshold_); }

void OutlierAccumulator::reset() {
  finite_ = 0;
  sum_squares_ = 0;
  magnitudes_ = {};
  mark_ran(false);
}

std::size_t OutlierAccumulator::sum_words() const { return kOutlierWords; }

void OutlierAccumulator::pack_sums(std::span<double> out) const {
  out[kFinite] = static_cast<double>(finite_);
  out[kSumSquares] = sum_squares_;
}

void OutlierAccumulator::pack_moments(std::span<const double> sums, std::span<double> out) const {
  if (magnitudes_.empty()) return;
  const double rms = std::sqrt(sums[kSumSquares] / sums[kFinite]);
  out[0] = static_cast<double>(count_above(magnitudes_, threshold_ * rms));
}

std::vector<StatValue> OutlierAccumulator::values(const ReducedStat& reduced) const {
  if (reduced.sums[kFinite] == 0) return {};
  const std::string name = fmt::format("outliers_threshold_{}", threshold_);
  const double count = reduced.moments[0];
  std::vector<StatValue> out = {{name, count}, {name + "%", 100 * count / reduced.sums[kFinite]}};
  if (reduced.sums[kSumSquares] == 0) {
    for (StatValue& value : out) value.flags = {"zero"};
  }
  return out;
}

}  // namespace amaxscope
