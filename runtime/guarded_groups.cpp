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
  for (const auto& [key, entry] : entries_) {
    if (entry.guard != nullptr) entry.guard->leave();
  }
}

CollectiveGuard& GuardedGroups::guard(Communicator* borrowed, std::string_view purpose) {
  Entry& entry = entries_[{borrowed, std::string(purpose)}];
  if (entry.guard == nullptr) {
    if (borrowed == nullptr) {
      entry.group = make_single_rank_communicator();
    } else {
      entry.group = borrowed->split(/*color=*/0, borrowed->rank(), {.what = purpose});
      entry.group->record_into(flight_, flight_name(*borrowed, purpose));
    }
    entry.guard = std::make_unique<CollectiveGuard>(*entry.group, options_);
  }
  return *entry.guard;
}

}  // namespace amaxscope
