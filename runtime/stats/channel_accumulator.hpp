// Outlier channels: the columns that hold most of the energy (sum of squares) of a tensor.
// Used by one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "core/tensor.hpp"
#include "runtime/stats/accumulator.hpp"

namespace amaxscope {

/// How the columns of a tensor are split over ranks: rank `part` of `parts` holds the part-th run of them.
struct ColumnSplit {
  int parts = 1;
  int part = 0;
};

/// For rank r = 1 .. top, most energy first: outlier_channel_r_id, the column's index in the whole tensor
/// (over all parts, which may be unequal), outlier_channel_r_energy%, its share of the energy of all columns,
/// and outlier_channel_r_due_steps, in how many of the last kRemembered due iterations (this one included) it
/// was among the top. Elements that are not finite count as 0; columns of zeros are not reported. Of columns
/// with equal energy the lower id comes first. A part that no rank has ever fed in this iteration is taken to
/// be as wide as the widest. Sends one sum for each column; a tensor of more than kMaxColumns has no such
/// statistic, and one warning says so.
class ChannelAccumulator final : public StatAccumulator {
 public:
  static constexpr std::size_t kRemembered = 16;
  static constexpr std::int64_t kMaxColumns = 1 << 20;

  ChannelAccumulator(int top, ColumnSplit split) : top_(top), split_(split) {}

  void feed(const TensorView& x);
  [[nodiscard]] std::string id() const override;
  void reset() override;
  [[nodiscard]] std::size_t max_words() const override { return static_cast<std::size_t>(split_.parts); }
  void pack_max(std::span<std::uint32_t> out) const override;
  [[nodiscard]] std::size_t sum_words_for(std::span<const std::uint32_t> max) const override;
  void pack_sums_for(std::span<const std::uint32_t> max, std::span<double> out) const override;
  void advance(const ReducedStat& reduced, std::int64_t iteration) override;
  [[nodiscard]] std::vector<std::string> take_warnings() override;
  [[nodiscard]] std::vector<StatValue> values(const ReducedStat& reduced) const override;
  /// The top channels of the due iterations so far, and back. Throws Error(kInput) for words that are none.
  [[nodiscard]] std::vector<std::uint64_t> saved() const;
  void restore(const std::vector<std::uint64_t>& words);

 private:
  int top_;
  ColumnSplit split_;
  std::vector<double> energies_;  ///< of this rank's columns
  bool too_wide_ = false;
  std::deque<std::vector<std::size_t>> history_;  ///< top ids of the last due iterations, newest last
  bool warned_ = false;
  std::vector<std::string> warnings_;
};

}  // namespace amaxscope
