// All statistics of one group in at most three collectives an iteration, however many layers and statistics:
// (1) MAX of ran flags and order statistics, signed, always of the same length; (2) SUM of counts and sums of
// what is due and ran anywhere; (3) SUM of second moments re-centred on the means from (2), when any is asked
// for. A check that failed may ask for each rank's own words: one more MAX, only then. A rank that did not
// run a layer contributes the identity. Matching is by name: entries travel in the order of their keys, which
// the ranks have compared (RegistrationAgreement). Owned and used by the session's thread. reduce() blocks up
// to the guard's deadline.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/collective_guard.hpp"
#include "runtime/feature/feature.hpp"
#include "runtime/schedule/schedule.hpp"

namespace amaxscope {

/// One declared statistic of one tensor.
struct StatEntry {
  std::string key;  ///< layer, tensor, layout, accumulator, schedule: equal on all ranks of the group
  const InspectedTensor* tensor = nullptr;
  const Feature* owner = nullptr;  ///< that declared it; of several, one whose findings set off most
  Schedule schedule;
  StatCell cell;
  bool contributes = true;  ///< false: a replica that another rank counts; packs as the identity
  std::unique_ptr<StatAccumulator> identity;  ///< never fed
};

/// A value that came back, with the entry and the phase it belongs to.
struct StatResult {
  const StatEntry* entry = nullptr;
  Phase phase = Phase::kForward;  ///< the tensor's training phase, or kEval
  std::vector<StatValue> values;
  std::vector<Finding> findings;
  std::vector<std::string> warnings;
};

class PackedReduction {
 public:
  /// The guards must outlive the reduction and belong to it alone; the second carries what failed checks ask
  /// for, in frames.
  PackedReduction(CollectiveGuard& guard, CollectiveGuard& details) : guard_(guard), details_(details) {}

  /// Adds an entry; it takes part from the next reduce() on, so all ranks must have agreed on it by then.
  void add(StatEntry& entry);

  [[nodiscard]] bool due(std::int64_t iteration) const;
  /// The first iteration >= from with something due.
  [[nodiscard]] std::optional<std::int64_t> next_due(std::int64_t from) const;

  /// Reduces what is due at this iteration and resets those accumulators. Collective over the group, with the
  /// same iteration on every rank. Entries that ran nowhere have no result. Errors as CollectiveGuard.
  std::vector<StatResult> reduce(std::int64_t iteration);

 private:
  struct Slot;
  std::vector<std::uint32_t> gather_details(std::vector<Slot>& slots,
                                            const std::vector<ReducedStat>& reduced);
  CollectiveGuard& guard_;
  CollectiveGuard& details_;
  std::vector<StatEntry*> entries_;  ///< by key
  std::size_t max_words_ = 0;
};

}  // namespace amaxscope
