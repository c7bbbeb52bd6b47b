// Where the amax of a tensor is heading over the due iterations: the statistics of the feature Trends.
// Used by one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "kernels/tensor_stats.hpp"
#include "runtime/stats/accumulator.hpp"
#include "runtime/stats/trend_series.hpp"

namespace amaxscope {

/// The largest magnitude that the representation of a tensor holds, and what may change it.
struct MagnitudeLimit {
  double value = 0;         ///< of the dtype, or of the FP8 format under the scale in use
  bool moves = false;       ///< the scale is made from this very amax: nothing ever saturates for long
  bool of_codes = false;    ///< of FP8 codes
  bool no_history = false;  ///< a scale that was never made from an amax
};

/// From the amax of each due iteration (of the finite elements, over ranks and micro-batches), reduced once:
/// amax_log2_slope bits an iteration, amax_jump_bits the last level less the median of those before it,
/// amax_reversals turns of a factor of two or more, amax_change_point and amax_level_shift_bits
/// (trend_series.hpp); headroom_bits log2(limit / amax), the least over ranks and micro-batches, and
/// steps_to_saturation, headroom over slope: in how many iterations the amax reaches the limit when slope and
/// limit stay as they are; 0 beyond it, none when the amax does not rise or the limit moves with it.
/// Flags nan_amax and inf_amax: elements of this iteration were not finite; no_history: of headroom_bits.
/// An iteration without a finite element other than 0 adds no point. The series outlives reset().
class TrendAccumulator final : public StatAccumulator {
 public:
  static constexpr double kJumpBits = 3;  ///< alarm amax_jump: at least eight times the median before
  static constexpr double kSaturationBits =
      -1;                               ///< alarm saturation, of codes: amax at twice the limit or more
  static constexpr int kReversals = 4;  ///< alarm oscillation
  static constexpr double kUnderflowPercent = 10;  ///< alarm underflow, unless another bound is given

  /// alarms: of known_alarms(). Each is a finding, once, when its condition first holds: amax_jump
  /// (amax_jump_bits >= kJumpBits), oscillation (amax_reversals >= kReversals), saturation (FP8 codes:
  /// headroom_bits <= kSaturationBits under a scale with a history; else: steps_to_saturation within as many
  /// iterations as the window spans), underflow (more than underflow_percent of the elements of a step were
  /// not 0 and their codes are; only then are they counted: two words in the step's sums).
  TrendAccumulator(int window, std::set<std::string> alarms, double underflow_percent = kUnderflowPercent);
  static const std::vector<std::string>& known_alarms();

  void feed(const TensorMoments& moments, const MagnitudeLimit& limit);
  /// Whether feed_codes() is wanted beside feed().
  [[nodiscard]] bool counts_underflows() const noexcept { return counts_underflows_; }
  void feed_codes(std::uint64_t underflows, std::uint64_t elements);
  /// The series, and which alarms have been raised; words for FeatureState.
  [[nodiscard]] std::vector<std::uint64_t> saved() const;
  void restore(std::span<const std::uint64_t> words);
  [[nodiscard]] std::string id() const override;
  void reset() override;
  [[nodiscard]] std::size_t max_words() const override;
  void pack_max(std::span<std::uint32_t> out) const override;
  [[nodiscard]] std::size_t sum_words() const override { return counts_underflows_ ? 2 : 0; }
  void pack_sums(std::span<double> out) const override;
  void advance(const ReducedStat& reduced, std::int64_t iteration) override;
  /// Those of the last advance().
  [[nodiscard]] std::vector<Finding> findings(const ReducedStat& reduced) const override;
  [[nodiscard]] std::vector<StatValue> values(const ReducedStat& reduced) const override;

 private:
  [[nodiscard]] std::optional<double> steps_to_saturation(const ReducedStat& reduced) const;
  void raise(const std::string& alarm, bool holds, std::string message);

  int window_;
  double underflow_percent_;
  bool counts_underflows_;
  double underflows_ = 0;
  double elements_ = 0;
  std::set<std::string> alarms_;  ///< not raised yet
  std::string alarm_text_;
  std::vector<std::uint32_t> words_;
  TrendSeries series_;
  std::vector<Finding> raised_;
};

}  // namespace amaxscope
