// What an optimizer step does to a parameter: the statistics of tensors of the kind "update".
// Used by one thread.
#pragma once

#include <string>
#include <vector>

#include "kernels/update_stats.hpp"
#include "runtime/stats/accumulator.hpp"

namespace amaxscope {

/// update_ratio: rms(update) / rms(weight), of the whole tensor. NaN when an update or weight is not finite;
/// no value when all weights are 0. lost_updates%: share of the updates that are not 0 which the stored
/// weight does not feel (kernels/ update_stats.hpp); over finite pairs. No value when no update is other than
/// 0. adam_ratio: rms(g / sqrt v), from what the optimizer hands in beside the update; NaN when one is not
/// finite. What a statistic needs and never got (the weight, g / sqrt v) leaves it out, with one warning.
class UpdateAccumulator final : public StatAccumulator {
 public:
  explicit UpdateAccumulator(std::vector<std::string> names);
  static const std::vector<std::string>& known_names();

  /// Null: not handed in.
  void feed(const TensorView& update, const TensorView* weight, const TensorView* normalized_gradient);
  [[nodiscard]] std::string id() const override;
  void reset() override;
  [[nodiscard]] std::size_t sum_words() const override;
  void pack_sums(std::span<double> out) const override;
  void advance(const ReducedStat& reduced, std::int64_t iteration) override;
  [[nodiscard]] std::vector<std::string> take_warnings() override;
  [[nodiscard]] std::vector<StatValue> values(const ReducedStat& reduced) const override;

 private:
  [[nodiscard]] bool asks_for(std::string_view name) const;

  std::vector<std::string> names_;
  UpdateStats stats_;
  bool without_weight_ = false;
  bool without_gradient_ = false;
  double gradient_count_ = 0;
  double gradient_nonfinite_ = 0;
  double gradient_squares_ = 0;
  bool warned_ = false;
  std::vector<std::string> warnings_;
};

}  // namespace amaxscope
