// Which rank saw a non-finite element first. Part of NonFiniteGuard.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "features/nonfinite_guard.hpp"
#include "kernels/finite_scan.hpp"
#include "runtime/stats/accumulator.hpp"

namespace amaxscope {

struct NonFiniteGuard::Seen {
  enum class Place : std::uint32_t { kValues, kRowwiseCodes, kColumnwiseCodes };
  Place place = Place::kValues;
  FiniteScan scan = {};
  std::uint32_t tensor = 0;    ///< in the order of registration
  std::uint32_t sequence = 0;  ///< the how-manieth tensor of the step it was on its rank
  TensorMoment moment = {};

  /// "the first NaN is element 7, 3 elements are not finite".
  [[nodiscard]] std::string text() const;
};

/// The ranks of a stage run the same program, so the place in the order of its tensors tells who was first.
/// MAX of its complement, so that the lowest wins; then every rank's own words.
class FirstSeen final : public StatAccumulator {
 public:
  /// Borrows the list, which is complete when the first step ends.
  explicit FirstSeen(const std::vector<const InspectedTensor*>& tensors) : tensors_(tensors) {}

  void feed(const NonFiniteGuard::Seen& seen);
  [[nodiscard]] std::string id() const override { return "first_nonfinite"; }
  void reset() override;
  [[nodiscard]] std::size_t max_words() const override { return 1; }
  void pack_max(std::span<std::uint32_t> out) const override;
  [[nodiscard]] std::size_t detail_words(const ReducedStat& reduced) const override;
  void pack_details(std::span<std::uint32_t> out) const override;
  [[nodiscard]] std::vector<Finding> findings(const ReducedStat& reduced) const override;
  [[nodiscard]] std::vector<StatValue> values(const ReducedStat&) const override { return {}; }

 private:
  const std::vector<const InspectedTensor*>& tensors_;
  std::optional<NonFiniteGuard::Seen> seen_;
  mutable bool reported_ = false;
};

}  // namespace amaxscope
