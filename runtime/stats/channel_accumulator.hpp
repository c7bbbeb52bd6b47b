// Outlier channels and rows: the columns, or the rows, that hold most of the energy (sum of squares) of a
// tensor, and since when. Used by one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "core/tensor.hpp"
#include "runtime/stats/accumulator.hpp"
#include "runtime/stats/energy_history.hpp"

namespace amaxscope {

enum class Lines : std::uint8_t { kColumns, kRows };

/// How the lines of a tensor are split over ranks: rank `part` of `parts` holds the part-th run of them.
struct LineSplit {
  int parts = 1;
  int part = 0;
};

/// "Channel" is said for a column. For place r = 1 .. top, most energy first: outlier_channel_r_id, the
/// column's index in the whole tensor (over all parts, which may be unequal), outlier_channel_r_energy%, its
/// share of the energy of all columns, outlier_channel_r_due_steps, in how many of the last kRemembered due
/// iterations (this one included) it was among the top, outlier_channel_r_tp_rank, the part that holds it,
/// where there are several, and outlier_channel_r_since, the iteration with which its share began to rise, if
/// it has one (EnergyHistory): said for as long as it stays among the top. Of rows: outlier_row_r_id and so
/// on. Elements that are not finite count as 0; lines of zeros are not reported. Of lines with equal energy
/// the lower id comes first. A part that no rank has ever fed in this iteration is taken to be as wide as the
/// widest. Sends one sum for each line; a tensor of more than kMaxLines has no such statistic, and one
/// warning says so.
class ChannelAccumulator final : public StatAccumulator {
 public:
  static constexpr std::size_t kRemembered = 16;
  static constexpr std::int64_t kMaxLines = 1 << 20;

  ChannelAccumulator(Lines lines, int top, LineSplit split) : lines_(lines), top_(top), split_(split) {}

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
  /// What is remembered of the due iterations so far, and back. Throws Error(kInput) for words that are none.
  [[nodiscard]] std::vector<std::uint64_t> saved() const;
  void restore(const std::vector<std::uint64_t>& words);

 private:
  void remember(const std::vector<std::size_t>& ids);

  Lines lines_;
  int top_;
  LineSplit split_;
  std::vector<double> energies_;  ///< of this rank's lines
  bool too_many_ = false;
  std::deque<std::vector<std::size_t>> history_;  ///< top ids of the last due iterations, newest last
  EnergyHistory shares_;
  std::map<std::size_t, std::int64_t> rising_;  ///< of the top ids: since when
  bool warned_ = false;
  std::vector<std::string> warnings_;
};

}  // namespace amaxscope
