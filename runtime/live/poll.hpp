// How ranks find out that one of them has something to say: one all-reduce of 8 bytes, and one more
// collective when some rank has. Used by the session's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "collectives/collective_guard.hpp"

namespace amaxscope {

class Poll {
 public:
  /// Most bytes that a rank can say at once.
  static constexpr std::size_t kLongestText = 16384;

  /// guard: of the world, used by this poll alone; must outlive it.
  explicit Poll(CollectiveGuard& guard) : guard_(guard) {}

  struct Answer {
    std::vector<std::string> texts;  ///< of every rank, by rank; empty: no rank has said anything
    std::uint32_t number = 0;        ///< the largest of all ranks
  };
  /// own: what this rank has to say, at most kLongestText bytes without a zero byte, empty for nothing.
  /// number: another word that all ranks learn the maximum of. Collective over the world with the same
  /// iteration on every rank; blocks and fails as CollectiveGuard does. The answer is the same on all ranks.
  Answer exchange(const std::string& own, std::uint32_t number, std::int64_t iteration);

  [[nodiscard]] CollectiveGuard& guard() const noexcept { return guard_; }

 private:
  CollectiveGuard& guard_;
};

}  // namespace amaxscope
