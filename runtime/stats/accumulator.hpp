// Partial statistics of one tensor between two reductions, and how they travel: order statistics in a MAX,
// sums in a SUM, second and higher moments in a SUM re-centred on the mean that the first SUM gave.
// Used by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/feature/finding.hpp"

namespace amaxscope {

/// One reported number. `flags` qualify it (config.md section 5: zero, zero_amax, inf_amax, nan_amax, ...).
struct StatValue {
  std::string name;
  double value = 0;
  std::vector<std::string> flags = {};
  bool detail = false;      ///< one of many (a bin): for records, not for a log that people read
  std::string format = {};  ///< of codes that are not the record's: of a recipe that the name says
};

/// What came back from the reduction; spans are as long as the accumulator asked for.
struct ReducedStat {
  std::span<const std::uint32_t> max;
  std::span<const double> sums;
  std::span<const double> moments;
  /// detail_words() of each rank, one after the other in the order of `ranks`; empty unless asked for.
  std::span<const std::uint32_t> details = {};
  std::span<const int> ranks = {};  ///< world ranks of the group
};

class StatAccumulator {
 public:
  virtual ~StatAccumulator() = default;
  /// Kind and parameters: part of what ranks compare ("moments", "block_range 32 1").
  [[nodiscard]] virtual std::string id() const = 0;
  /// Back to "nothing fed", which packs as the identity of every reduction.
  virtual void reset() = 0;
  [[nodiscard]] bool ran() const noexcept { return ran_; }

  [[nodiscard]] virtual std::size_t max_words() const { return 0; }
  [[nodiscard]] virtual std::size_t sum_words() const { return 0; }
  [[nodiscard]] virtual std::size_t moment_words() const { return 0; }
  virtual void pack_max(std::span<std::uint32_t>) const {}
  virtual void pack_sums(std::span<double>) const {}
  /// For an accumulator whose number of sums is known only when all ranks have spoken: a function of its
  /// reduced maxima, so that every rank gives the same. Else sum_words() and pack_sums().
  [[nodiscard]] virtual std::size_t sum_words_for(std::span<const std::uint32_t> /*max*/) const {
    return sum_words();
  }
  virtual void pack_sums_for(std::span<const std::uint32_t> /*max*/, std::span<double> out) const {
    pack_sums(out);
  }
  /// Given the reduced sums of this accumulator.
  virtual void pack_moments(std::span<const double>, std::span<double>) const {}
  /// A check that has failed asks for every rank's own words (one more collective, only then). The answer may
  /// depend on `reduced` alone, so that all ranks give the same.
  [[nodiscard]] virtual std::size_t detail_words(const ReducedStat&) const { return 0; }
  virtual void pack_details(std::span<std::uint32_t>) const {}
  /// What a check has found; reported by the first rank of the group. The caller fills in the iteration and,
  /// where no layer is named, layer, tensor and phase.
  [[nodiscard]] virtual std::vector<Finding> findings(const ReducedStat&) const { return {}; }
  /// Told what came back, once for each iteration in which the statistic is due and ran on some rank, before
  /// values(): for what outlives reset() (series, persistence). On every rank of the group alike, also where
  /// nothing was fed.
  virtual void advance(const ReducedStat& /*reduced*/, std::int64_t /*iteration*/) {}
  /// What people should know of the measurement itself (a statistic that cannot be given), found by
  /// advance(); said by the first rank of the group. Each is returned once.
  [[nodiscard]] virtual std::vector<std::string> take_warnings() { return {}; }
  /// The requested statistics. One that has no value (std of one element) is left out.
  [[nodiscard]] virtual std::vector<StatValue> values(const ReducedStat& reduced) const = 0;

 protected:
  void mark_ran(bool ran) noexcept { ran_ = ran; }

 private:
  bool ran_ = false;
};

/// Order-preserving bits of a float that is not NaN: a < b exactly when order_bits(a) < order_bits(b).
std::uint32_t order_bits(float value) noexcept;
float from_order_bits(std::uint32_t bits) noexcept;

}  // namespace amaxscope
