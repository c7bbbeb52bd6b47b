#include "runtime/stats/stat_store.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "core/error.hpp"

namespace amaxscope {

namespace {

constexpr std::size_t kShownLayers = 4;

/// "a, b, c, d and 12 more"
std::string shortened(const std::vector<std::string>& names) {
  const std::size_t shown = names.size() <= kShownLayers + 1 ? names.size() : kShownLayers;
  std::string text =
      fmt::format("{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  if (shown < names.size()) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

}  // namespace

StatStore::Group& StatStore::group_of(Communicator* borrowed) {
  for (const std::unique_ptr<Group>& group : order_) {
    if (group->borrowed == borrowed) return *group;
  }
  return *order_.emplace_back(std::make_unique<Group>(borrowed, groups_));
}

StatStore::Tensor& StatStore::find(const InspectedTensor& tensor) {
  const auto found = tensor_index_.find(&tensor);
  AMAXSCOPE_CHECK(found != tensor_index_.end(), ErrorCode::kInternal, "{} {} was not placed", tensor.layer,
                  tensor.name);
  return tensors_[found->second];
}

void StatStore::place(const InspectedTensor& tensor, StatPlacement placement) {
  Group& group = group_of(placement.group);
  tensor_index_.emplace(&tensor, tensors_.size());
  tensors_.push_back({&tensor, std::move(placement), &group});
}

void StatStore::note_format(const InspectedTensor& tensor, std::string format) {
  const auto found = tensor_index_.find(&tensor);
  // A backward may still run under a config that was exchanged; its tensors have no record any more.
  if (found != tensor_index_.end()) tensors_[found->second].format = std::move(format);
}

StatCell& StatStore::declare(const InspectedTensor& tensor, const Schedule& schedule,
                             const std::function<std::unique_ptr<StatAccumulator>()>& make) {
  const Tensor& placed = find(tensor);
  auto train = make();
  std::string key = fmt::format("{} {} {} {} {}", tensor.layer, tensor.name, to_string(tensor.layout),
                                train->id(), schedule.text());
  StatCell cell{std::move(train), make()};
  if (const auto known = entries_.find(key); known != entries_.end()) {
    const Feature*& owner = known->second->owner;
    if (owner_ != nullptr && (owner == nullptr || owner->trigger() < owner_->trigger())) owner = owner_;
    return *unread_.emplace_back(std::make_unique<StatCell>(std::move(cell)));
  }
  return enter(std::move(key), tensor, schedule, std::move(cell), make(), placed.placement.contributes,
               *placed.group);
}

StatCell& StatStore::enter(std::string key, const InspectedTensor& tensor, const Schedule& schedule,
                           StatCell cell, std::unique_ptr<StatAccumulator> identity, bool contributes,
                           Group& group) {
  auto entry = std::make_unique<StatEntry>();
  entry->key = key;
  entry->tensor = &tensor;
  entry->owner = owner_;
  entry->schedule = schedule;
  entry->cell = std::move(cell);
  entry->contributes = contributes;
  entry->identity = std::move(identity);
  group.reduction.add(*entry);
  group.list.add(key);
  return entries_.emplace(std::move(key), std::move(entry)).first->second->cell;
}

Communicator* StatStore::check_group(ReduceOver over, const InspectedTensor& tensor) const {
  switch (over) {
    case ReduceOver::kTensorParallel:
      return check_groups_.tp;
    case ReduceOver::kStage:
      return check_groups_.stage;
    case ReduceOver::kReplicas:
      break;
  }
  const bool replicated = tensor.layout == Layout::kReplicated;
  if (tensor.same_over_dp) return replicated ? check_groups_.stage : check_groups_.dp_cp;
  return replicated ? check_groups_.tp : nullptr;
}

StatCell& StatStore::declare_over(ReduceOver over, const InspectedTensor& tensor, const Schedule& schedule,
                                  const std::function<std::unique_ptr<StatAccumulator>()>& make) {
  auto train = make();
  std::string key = fmt::format("{} {} {} {} {} over {}", tensor.layer, tensor.name, to_string(tensor.layout),
                                train->id(), schedule.text(), static_cast<int>(over));
  AMAXSCOPE_CHECK(!entries_.contains(key), ErrorCode::kInternal, "check {} is declared twice", key);
  StatCell cell{std::move(train), make()};
  return enter(std::move(key), tensor, schedule, std::move(cell), make(), /*contributes=*/true,
               group_of(check_group(over, tensor)));
}

void StatStore::skip(const InspectedTensor& tensor, std::string_view statistic, std::string_view why) {
  if (!skipped_.emplace(tensor.layer, statistic).second) return;
  log_.write_to_files(LogLevel::kWarn,
                      fmt::format("{}: {} of {} is skipped: {}", tensor.layer, statistic, tensor.name, why));
  untold_.push_back({tensor.layer, std::string(statistic), std::string(why)});
}

void StatStore::tell_skipped(bool on_screen) {
  const std::vector<Skipped> untold = std::exchange(untold_, {});
  if (!on_screen) return;
  struct Reason {
    std::string why;
    std::vector<std::string> statistics;
    std::vector<std::string> layers;
  };
  const auto add = [](std::vector<std::string>& list, const std::string& word) {
    if (std::ranges::find(list, word) == list.end()) list.push_back(word);
  };
  std::vector<Reason> reasons;
  for (const Skipped& skipped : untold) {
    auto known = std::ranges::find(reasons, skipped.why, &Reason::why);
    if (known == reasons.end()) known = reasons.insert(reasons.end(), {skipped.why, {}, {}});
    add(known->statistics, skipped.statistic);
    add(known->layers, skipped.layer);
  }
  for (const Reason& reason : reasons) {
    log_.warn("skipped on {}: {}: {}", shortened(reason.layers), fmt::join(reason.statistics, ", "),
              reason.why);
  }
}

void StatStore::add_registration(Communicator* group, std::string line) {
  group_of(group).list.add(std::move(line));
}

const RegistrationList& StatStore::registrations(Communicator* group) { return group_of(group).list; }

void StatStore::settle() {
  for (const std::unique_ptr<Group>& group : order_) group->agreement.settle();
}

std::optional<std::int64_t> StatStore::next_due(std::int64_t from) const {
  std::optional<std::int64_t> earliest;
  for (const std::unique_ptr<Group>& group : order_) {
    const std::optional<std::int64_t> next = group->reduction.next_due(from);
    if (next && (!earliest || *next < *earliest)) earliest = next;
  }
  return earliest;
}

StatStore::Reduced StatStore::reduce(std::int64_t iteration) {
  Reduced reduced;
  std::map<std::pair<std::size_t, Phase>, StatRecord> records;
  for (const std::unique_ptr<Group>& group : order_) {
    if (!group->reduction.due(iteration)) continue;
    for (StatResult& result : group->reduction.reduce(iteration)) {
      const InspectedTensor& tensor = *result.entry->tensor;
      const bool reports = group->borrowed == nullptr || group->borrowed->rank() == 0;
      for (Finding& finding : result.findings) {
        if (!reports) break;
        finding.iteration = iteration;
        if (finding.layer.empty()) {
          finding.layer = tensor.layer;
          finding.tensor = tensor.name;
          finding.phase = result.phase;
        }
        reduced.findings.push_back({result.entry->owner, std::move(finding)});
      }
      for (const std::string& warning : result.warnings) {
        if (reports) log_.warn("{}: {} of {}", tensor.layer, warning, tensor.name);
      }
      if (result.values.empty()) continue;
      const std::size_t index = tensor_index_.at(&tensor);
      StatRecord& record = records[{index, result.phase}];
      if (record.layer.empty()) {
        const StatPlacement& placement = tensors_[index].placement;
        record.iteration = iteration;
        record.layer = tensor.layer;
        record.tensor = tensor.name;
        record.phase = result.phase;
        record.recipe = to_string(tensor.recipe);
        record.format = tensors_[index].format;
        record.group = placement.ranks;
        record.layout = tensor.layout;
        record.leader = placement.leader;
      }
      for (StatValue& value : result.values) {
        // Two sections may ask for the same number in different lists; it is reported once.
        const bool known =
            std::ranges::any_of(record.stats, [&](const StatValue& s) { return s.name == value.name; });
        if (!known) record.stats.push_back(std::move(value));
      }
    }
  }
  reduced.records.reserve(records.size());
  for (auto& [key, record] : records) tensors_[key.first].format.clear();
  for (auto& [key, record] : records) reduced.records.push_back(std::move(record));
  return reduced;
}

}  // namespace amaxscope
