// What follows from where the magnitudes of a tensor lie: log2 histogram and share of outliers.
// Used by one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/magnitudes.hpp"
#include "kernels/tensor_stats.hpp"
#include "runtime/stats/accumulator.hpp"

namespace amaxscope {

/// histogram_zero, histogram_nan, histogram_inf and histogram_2^K: how many elements have 2^K <= |x| <
/// 2^(K+1). Bins are reported from the highest that holds anything, at most `bins` of them; empty ones are
/// left out. What lies lower, if anything does, is histogram_below_2^K, where K is the lowest that could be
/// reported. The counts reported always add up to the number of elements.
class HistogramAccumulator final : public StatAccumulator {
 public:
  explicit HistogramAccumulator(int bins) : reported_(bins) {}

  void feed(const TensorView& x);
  [[nodiscard]] std::string id() const override;
  void reset() override;
  [[nodiscard]] std::size_t sum_words() const override;
  void pack_sums(std::span<double> out) const override;
  [[nodiscard]] std::vector<StatValue> values(const ReducedStat& reduced) const override;

 private:
  int reported_;
  ExponentHistogram counts_;
};

/// outliers_threshold_T and outliers_threshold_T%: the number of finite elements with |x| > T * rms and their
/// share of the finite elements, where rms is that of the finite elements of the whole tensor (all ranks and
/// micro-batches). Both sides are cut to bf16 before they are compared (kernels/magnitudes.hpp). All zero: 0
/// with the flag "zero". Nothing finite: no value. Holds 256 KiB from the first feed to the reset: the rms is
/// known only when all ranks have spoken.
class OutlierAccumulator final : public StatAccumulator {
 public:
  explicit OutlierAccumulator(int threshold) : threshold_(threshold) {}

  /// moments: those of x.
  void feed(const TensorMoments& moments, const TensorView& x);
  [[nodiscard]] std::string id() const override;
  void reset() override;
  [[nodiscard]] std::size_t sum_words() const override;
  [[nodiscard]] std::size_t moment_words() const override { return 1; }
  void pack_sums(std::span<double> out) const override;
  void pack_moments(std::span<const double> sums, std::span<double> out) const override;
  [[nodiscard]] std::vector<StatValue> values(const ReducedStat& reduced) const override;

 private:
  int threshold_;
  std::uint64_t finite_ = 0;
  double sum_squares_ = 0;
  std::vector<std::uint64_t> magnitudes_;  ///< empty or kMagnitudeBuckets
};

}  // namespace amaxscope
