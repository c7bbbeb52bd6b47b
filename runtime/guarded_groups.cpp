#include "runtime/guarded_groups.hpp"

#include <fmt/format.h>

#include "collectives/loopback_communicator.hpp"

namespace amaxscope {

namespace {

std::string flight_name(const Communicator& borrowed, std::string_view purpose) {
  if (borrowed.flight() == nullptr) return std::string(purpose);
  return fmt::format("{}/{}", borrowed.flight()->group_name(borrowed.flight_group()), purpose);
}

}  // namespace

GuardedGroups::GuardedGroups(CollectiveGuard::Options options) : options_(std::move(options)) {}

void GuardedGroups::leave() noexcept {
  for (const Entry& entry : entries_) entry.guard->leave();
}

CollectiveGuard& GuardedGroups::guard(Communicator* borrowed, std::string_view purpose) {
  for (const Entry& entry : entries_) {
    if (entry.borrowed == borrowed && entry.purpose == purpose) return *entry.guard;
  }
  std::unique_ptr<Communicator> group;
  if (borrowed == nullptr) {
    group = make_single_rank_communicator();
  } else {
    group = borrowed->split(/*color=*/0, borrowed->rank(), {.what = purpose});
    group->record_into(flight_, flight_name(*borrowed, purpose));
  }
  auto guard = std::make_unique<CollectiveGuard>(*group, options_);
  entries_.push_back({borrowed, std::string(purpose), std::move(group), std::move(guard)});
  return *entries_.back().guard;
}

}  // namespace amaxscope
