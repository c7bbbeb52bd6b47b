// The statistics of LogFp8TensorStats for one recipe and direction.
#pragma once

#include <string>
#include <vector>

#include "kernels/quantization_error.hpp"
#include "runtime/stats/accumulator.hpp"

namespace amaxscope {

/// Which count overflows% reports.
enum class OverflowRule {
  kAboveMaximum,      ///< delayed scaling: |x| > fp8_max * scale_inv (the reference's)
  kRoundsPastMaximum  ///< other recipes: the scaled value would round past the maximum
};

/// Names, logged with `prefix` before and `suffix` behind: underflows% overflows% scale_inv_min scale_inv_max
/// mse sqnr cosine max_error. Percentages are of all elements; mse is over those that are not NaN. sqnr is 10
/// log10(signal / error) in dB, +Inf with the flag "exact" for no error; cosine is 1 for zeros quantized to
/// zeros, 0 when everything became zero. Every value carries the flags of the scales fed, and nan_amax when
/// an element was NaN. All empty: nothing is reported; all NaN: no mse, sqnr, cosine, max_error.
class QuantizationAccumulator final : public StatAccumulator {
 public:
  QuantizationAccumulator(std::string prefix, std::string suffix, std::vector<std::string> names,
                          OverflowRule rule);
  static const std::vector<std::string>& known_names();

  /// flags: what is special about this scale (zero_amax, inf_amax, scale_clamped, no_history). An empty
  /// tensor counts as run and brings in neither scale nor flags.
  void feed(const QuantizationError& error, float scale_inv, std::span<const std::string> flags);
  [[nodiscard]] std::string id() const override;
  void reset() override;
  [[nodiscard]] std::size_t max_words() const override;
  [[nodiscard]] std::size_t sum_words() const override;
  void pack_max(std::span<std::uint32_t> out) const override;
  void pack_sums(std::span<double> out) const override;
  [[nodiscard]] std::vector<StatValue> values(const ReducedStat& reduced) const override;

 private:
  std::string prefix_;
  std::string suffix_;
  std::vector<std::string> names_;
  OverflowRule rule_;
  QuantizationError error_;
  float scale_inv_min_ = 0;
  float scale_inv_max_ = 0;
  std::uint32_t flag_bits_ = 0;
};

}  // namespace amaxscope
