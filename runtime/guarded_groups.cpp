#include "runtime/guarded_groups.hpp"

#include "collectives/loopback_communicator.hpp"

namespace amaxscope {

GuardedGroups::GuardedGroups(CollectiveGuard::Options options) : options_(std::move(options)) {}

CollectiveGuard& GuardedGroups::guard(Communicator* borrowed, std::string_view purpose) {
  Entry& entry = entries_[{borrowed, std::string(purpose)}];
  if (entry.guard == nullptr) {
    entry.group = borrowed == nullptr
                      ? make_single_rank_communicator()
                      : borrowed->split(/*color=*/0, borrowed->rank(), {.what = "debug group"});
    entry.guard = std::make_unique<CollectiveGuard>(*entry.group, options_);
  }
  return *entry.guard;
}

}  // namespace amaxscope
