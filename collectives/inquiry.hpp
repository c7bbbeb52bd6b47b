// What ranks that wait tell each other by message: a roll-call where they share no files. Sends nothing
// before somebody asks. Used by one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "collectives/side_channel.hpp"
#include "core/clock.hpp"

namespace amaxscope {

class Inquiry {
 public:
  /// Larger groups are not asked: every rank that waits would ask every other.
  static constexpr int kMostRanks = 256;

  struct Answer {
    std::uint64_t sequence = 0;  ///< of the collective of the group that it waits in
    std::string call;            ///< and its description
  };

  explicit Inquiry(std::unique_ptr<SideChannel> channel) : channel_(std::move(channel)) {}

  /// Tells those who have asked since the last time. Does not block.
  void answer(const Answer& own);
  /// Asks these ranks of the group and answers meanwhile, until all have answered or the time is up. Ranks
  /// that had asked before count as well: they waited then.
  const std::map<int, Answer>& ask(std::span<const int> ranks, const Answer& own,
                                   std::chrono::milliseconds patience, const Clock& clock);

 private:
  void send(int to, char kind, const Answer& own);

  std::unique_ptr<SideChannel> channel_;
  std::map<int, Answer> known_;  ///< by rank in the group
};

}  // namespace amaxscope
