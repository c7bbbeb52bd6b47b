// The statistics of LogTensorStats: everything that follows from TensorMoments.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernels/tensor_stats.hpp"
#include "runtime/stats/accumulator.hpp"

namespace amaxscope {

/// Names: min max mean std l1_norm l2_norm cur_amax dynamic_range numel nonzero nan inf rms min_finite
/// max_finite amax_finite skewness kurtosis peak_rms.
/// Any NaN makes min, max, cur_amax, mean, std, skewness, kurtosis, the norms, rms and peak_rms NaN. Inf
/// makes cur_amax, the norms and rms Inf, mean the Inf of that sign (NaN with both signs) and std, skewness,
/// kurtosis and peak_rms NaN. Then the counts nan and inf, min_finite, max_finite and amax_finite are
/// reported beside what was asked for. dynamic_range is log2(amax / smallest non-zero magnitude) over finite
/// elements, 0 with the flag "zero" when all are zero. peak_rms is amax / rms, 0 with the flag "zero" when
/// all are zero. std is the sample standard deviation, absent for one element. skewness is (m3 / n) / (m2 /
/// n)^1.5 and kurtosis the excess (m4 / n) / (m2 / n)^2 - 3, of the population; absent when all elements are
/// equal. No element: only numel (0), asked for or not.
class MomentsAccumulator final : public StatAccumulator {
 public:
  explicit MomentsAccumulator(std::vector<std::string> names);
  static const std::vector<std::string>& known_names();

  /// What must be fed for the names asked for.
  [[nodiscard]] MomentOrder order() const noexcept { return order_; }
  void feed(const TensorMoments& moments);
  [[nodiscard]] std::string id() const override;
  void reset() override;
  [[nodiscard]] std::size_t max_words() const override;
  [[nodiscard]] std::size_t sum_words() const override;
  [[nodiscard]] std::size_t moment_words() const override;
  void pack_max(std::span<std::uint32_t> out) const override;
  void pack_sums(std::span<double> out) const override;
  void pack_moments(std::span<const double> sums, std::span<double> out) const override;
  [[nodiscard]] std::vector<StatValue> values(const ReducedStat& reduced) const override;

 private:
  std::vector<std::string> names_;
  bool std_;
  MomentOrder order_;
  TensorMoments moments_;
};

/// max_blockwise_dynamic_range under its log name, a plain maximum over shards and micro-batches in fp32; NaN
/// wins.
class BlockRangeAccumulator final : public StatAccumulator {
 public:
  BlockRangeAccumulator(int block_size, int dims, bool both_orientations);
  /// "max_blockwise_dynamic_range_block_size_32_dims_1" [+ "_max_over_orientations"]
  [[nodiscard]] std::string stat_name() const;
  [[nodiscard]] int block_size() const noexcept { return block_size_; }
  [[nodiscard]] int dims() const noexcept { return dims_; }
  [[nodiscard]] bool both_orientations() const noexcept { return both_orientations_; }

  /// No value: an empty tensor, which counts as run and has no block. All empty: nothing is reported.
  void feed(std::optional<double> range);
  [[nodiscard]] std::string id() const override { return stat_name(); }
  void reset() override;
  [[nodiscard]] std::size_t max_words() const override { return 1; }
  void pack_max(std::span<std::uint32_t> out) const override;
  [[nodiscard]] std::vector<StatValue> values(const ReducedStat& reduced) const override;

 private:
  int block_size_;
  int dims_;
  bool both_orientations_;
  std::uint32_t word_ = 0;  ///< order_bits of the largest range
};

}  // namespace amaxscope
