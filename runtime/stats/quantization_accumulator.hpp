// The statistics of LogFp8TensorStats and LogNvfp4TensorStats for one recipe and direction.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/quantization_error.hpp"
#include "runtime/stats/accumulator.hpp"
#include "runtime/stats/rounding_sums.hpp"

namespace amaxscope {

/// Which count overflows% reports.
enum class OverflowRule {
  kAboveMaximum,      ///< delayed scaling: |x| > fp8_max * scale_inv (the reference's)
  kRoundsPastMaximum  ///< other recipes: the scaled value would round past the maximum
};

/// What is fed of one tensor. Codes under one scale have no blocks (measured.blocks is 0), and scale_min and
/// scale_max are that scale's inverse.
struct QuantizationSample {
  BlockQuantizationError measured;
  std::vector<std::string> flags = {};                   ///< zero_amax, inf_amax, scale_clamped, no_history
  std::optional<std::int64_t> scale_age = std::nullopt;  ///< iterations since the scale last changed
  RoundingSums rounding = {};
  int microbatch = 0;
  std::string format = {};  ///< of the codes; to be said with each value when not empty
  bool scale_only = false;  ///< there was no original to compare with: only the scales mean something
};

/// Names, logged with `prefix` before and `suffix` behind. Percentages of elements are of all elements;
/// sums, mse and energies are over those whose original and decoded value are finite.
///   underflows% flushed%      non-zero elements that decode to zero (the same count, under both names)
///   overflows%                by the rule
///   saturated%                the scaled value would round past the largest code
///   saturated_energy% flushed_energy%   the same elements' part of the sum of squares
///   scale_inv_min scale_inv_max scale_spread   in decoded units; spread is log2(max / min)
///   scale_age                 largest fed
///   mse sqnr cosine max_error
///   zero_blocks               count
///   saturated_blocks% flushed_blocks%   blocks with such an element
///   worst_blocks              the kWorstBlocks blocks of all ranks and micro-batches with the largest error:
///                             worst_block_1_error% (of the sum of squared errors), .._row, .._col (of its
///                             first element in that rank's part), .._rank (of the world), .._microbatch
///   rounding_mean rounding_z rounding_correlation   of the samples (RoundingSums)
/// sqnr is 10 log10(signal / error) in dB, +Inf with the flag "exact" for no error; cosine is 1 for zeros
/// quantized to zeros, 0 when everything became zero. Every value carries the flags of the scales fed, and
/// nan_amax when an element was NaN. All empty: nothing is reported. A quotient by 0 is left out, and so are
/// scales when every block was zero.
class QuantizationAccumulator final : public StatAccumulator {
 public:
  QuantizationAccumulator(std::string prefix, std::string suffix, std::vector<std::string> names,
                          OverflowRule rule);
  static const std::vector<std::string>& known_names();
  /// Statistics that speak of blocks, of the rounding samples, of the age of one scale, and those that
  /// need no original.
  static bool is_about_blocks(std::string_view name) noexcept;
  static bool is_about_rounding(std::string_view name) noexcept;
  static bool is_about_age(std::string_view name) noexcept;
  static bool is_about_scale(std::string_view name) noexcept;

  /// An empty tensor counts as run and brings in neither scale nor flags.
  void feed(const QuantizationSample& sample);
  void feed(const QuantizationError& error, float scale_inv, std::span<const std::string> flags);
  [[nodiscard]] std::string id() const override;
  void reset() override;
  [[nodiscard]] std::size_t max_words() const override;
  [[nodiscard]] std::size_t sum_words() const override;
  void pack_max(std::span<std::uint32_t> out) const override;
  void pack_sums(std::span<double> out) const override;
  [[nodiscard]] std::size_t detail_words(const ReducedStat& reduced) const override;
  void pack_details(std::span<std::uint32_t> out) const override;
  [[nodiscard]] std::vector<StatValue> values(const ReducedStat& reduced) const override;

 private:
  struct Placed {
    WorstBlock block;
    int microbatch = 0;
  };
  [[nodiscard]] bool asks_for_worst_blocks() const noexcept;
  void add_worst(const ReducedStat& reduced, std::vector<StatValue>& out) const;

  std::string prefix_;
  std::string suffix_;
  std::vector<std::string> names_;
  OverflowRule rule_;
  BlockQuantizationError measured_;
  std::uint32_t scale_age_word_ = 0;  ///< age + 1; 0: none was fed
  RoundingSums rounding_;
  std::array<Placed, kWorstBlocks> worst_ = {};
  std::uint32_t flag_bits_ = 0;
  std::string format_;
};

}  // namespace amaxscope
