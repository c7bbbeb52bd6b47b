// Every statistic that features have declared, grouped by the ranks it is reduced over.
// Owned and used by the session's thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/log.hpp"
#include "runtime/feature/feature.hpp"
#include "runtime/guarded_groups.hpp"
#include "runtime/schedule/registration_agreement.hpp"
#include "runtime/sinks/sink.hpp"
#include "runtime/stats/packed_reduction.hpp"
#include "runtime/stats/placement.hpp"

namespace amaxscope {

class StatStore final : public Registration {
 public:
  /// Both must outlive the store.
  StatStore(GuardedGroups& groups, Log& log) : groups_(groups), log_(log) {}

  /// Where checks are reduced; before any is declared.
  void set_groups(const PlacementGroups& groups) { check_groups_ = groups; }

  /// Says where the statistics of this tensor are reduced; before they are declared. Collective over the
  /// group when it is the first of it. The tensor must outlive the store.
  void place(const InspectedTensor& tensor, StatPlacement placement);
  /// What the operand is in now, for its next record.
  void note_format(const InspectedTensor& tensor, std::string format);

  /// What is declared from now on is declared by this feature.
  void set_owner(const Feature* owner) noexcept { owner_ = owner; }

  /// See Registration. A statistic declared before gets a cell that nobody reads, so that it counts once.
  StatCell& declare(const InspectedTensor& tensor, const Schedule& schedule,
                    const std::function<std::unique_ptr<StatAccumulator>()>& make) override;
  StatCell& declare_over(ReduceOver over, const InspectedTensor& tensor, const Schedule& schedule,
                         const std::function<std::unique_ptr<StatAccumulator>()>& make) override;
  /// Collected until tell_skipped().
  void skip(const InspectedTensor& tensor, std::string_view statistic, std::string_view why) override;

  /// Writes what was skipped since the last time: a line for each (layer, statistic) in the log's files, and
  /// one for each reason on the screen when `on_screen` (one rank of those that skip the same).
  void tell_skipped(bool on_screen);

  /// What the ranks of this group must have in common besides statistics. Null: nothing to compare.
  void add_registration(Communicator* group, std::string line);
  [[nodiscard]] const RegistrationList& registrations(Communicator* group);

  /// Compares with the other ranks of each group what was registered since the last time. Collective over the
  /// groups concerned; throws Error(kMismatch).
  void settle();

  /// How many statistics are declared, those that nobody reads included.
  [[nodiscard]] std::size_t size() const noexcept { return entries_.size() + unread_.size(); }
  /// The first iteration >= from at which something is due.
  [[nodiscard]] std::optional<std::int64_t> next_due(std::int64_t from) const;

  struct OwnedFinding {
    const Feature* owner = nullptr;  ///< null: declared without one
    Finding finding;
  };
  struct Reduced {
    std::vector<StatRecord>
        records;  ///< one for each tensor and phase that ran, in the order of registration
    std::vector<OwnedFinding> findings;  ///< of checks, those that this rank reports
  };
  /// Reduces what is due.
  Reduced reduce(std::int64_t iteration);

 private:
  struct Group {
    Communicator* borrowed;
    PackedReduction reduction;
    RegistrationList list;
    RegistrationAgreement agreement;
    Group(Communicator* group, GuardedGroups& groups)
        : borrowed(group),
          reduction(groups.guard(group, "statistics"), groups.guard(group, "details")),
          agreement(groups.guard(group, "control"), list) {}
  };
  struct Skipped {
    std::string layer;
    std::string statistic;
    std::string why;
  };
  struct Tensor {
    const InspectedTensor* tensor;
    StatPlacement placement;
    Group* group;
    std::string format = {};  ///< seen since the last record
  };
  Group& group_of(Communicator* borrowed);
  [[nodiscard]] Communicator* check_group(ReduceOver over, const InspectedTensor& tensor) const;
  StatCell& enter(std::string key, const InspectedTensor& tensor, const Schedule& schedule, StatCell cell,
                  std::unique_ptr<StatAccumulator> identity, bool contributes, Group& group);
  Tensor& find(const InspectedTensor& tensor);

  GuardedGroups& groups_;
  Log& log_;
  PlacementGroups check_groups_;
  std::vector<std::unique_ptr<Group>> order_;  ///< of creation: the same on all ranks of a group
  std::vector<Tensor> tensors_;
  std::map<const InspectedTensor*, std::size_t> tensor_index_;
  std::map<std::string, std::unique_ptr<StatEntry>, std::less<>> entries_;
  std::vector<std::unique_ptr<StatCell>> unread_;
  const Feature* owner_ = nullptr;
  std::set<std::pair<std::string, std::string>> skipped_;
  std::vector<Skipped> untold_;
};

}  // namespace amaxscope
