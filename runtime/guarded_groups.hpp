// The runtime's own communicators: for each borrowed group and kind of traffic a split of it with a guard, so
// that debug traffic never meets the trainer's, and calls of different length never meet each other. Owned by
// the session, used by its thread. A first use is collective over the group.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/collective_guard.hpp"

namespace amaxscope {

class GuardedGroups {
 public:
  explicit GuardedGroups(CollectiveGuard::Options options);

  /// Where the traffic of these groups is written down, under the name of the borrowed group and the purpose:
  /// "tp/amax". Before the first guard.
  void record_into(std::shared_ptr<FlightRecorder> flight) { flight_ = std::move(flight); }
  /// This rank takes no more part: ranks that wait for it need not wait any longer.
  void leave() noexcept;

  /// The guard for this kind of traffic over the members of `borrowed`; null: this rank alone, no
  /// communication.
  CollectiveGuard& guard(Communicator* borrowed, std::string_view purpose);

 private:
  struct Entry {
    Communicator* borrowed;
    std::string purpose;
    std::unique_ptr<Communicator> group;
    std::unique_ptr<CollectiveGuard> guard;
  };
  CollectiveGuard::Options options_;
  std::shared_ptr<FlightRecorder> flight_;
  /// In the order in which they were made, which is the same on all ranks and in which they are destroyed: a
  /// group over NCCL ends when all of its ranks end it.
  std::vector<Entry> entries_;
};

}  // namespace amaxscope
