// Who is where, asked by a rank that waits: from the flight records of the others, which need not take part
// in this. Looks at files only; a rank whose file cannot be read is unknown, unless it has answered an
// Inquiry, and changes nothing else.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "collectives/flight_recorder.hpp"
#include "collectives/inquiry.hpp"

namespace amaxscope {

class RollCall {
 public:
  /// own: of the rank that waits, in this collective of its group. It must outlive the roll-call.
  RollCall(const FlightRecorder& own, std::size_t group, std::uint64_t sequence)
      : own_(own), group_(group), sequence_(sequence), created_(own.created()) {}

  struct Look {
    /// Some rank that is waited for, or that such a rank waits for, has got on since the last look.
    bool moved = false;
    /// Why the collective will never complete; empty when it still may.
    std::string hopeless;
  };
  /// Reads the files of the ranks of the group, and of those that the missing ones wait for.
  Look look();

  /// The ranks of the group, by their world rank, whose files say nothing to this one.
  [[nodiscard]] std::vector<int> unknown() const;

  /// Where each rank of the group is, and the last collectives of those that are missing: lines led by two
  /// blanks and not ended by a newline. answers: what the unknown ones said when they were asked, by world
  /// rank; null: nobody was asked.
  [[nodiscard]] std::string text(const std::map<int, Inquiry::Answer>* answers = nullptr) const;

 private:
  using Statuses = std::map<int, std::optional<FlightStatus>>;
  /// Null when it cannot be read, or says nothing of the time since this rank's own record began: a file of
  /// an earlier run.
  const FlightStatus* status_of(int rank, Statuses& known) const;
  /// Why this rank will not come, as it seems; empty when it may.
  [[nodiscard]] std::string fate_of(const FlightStatus& status, const FlightGroup& group) const;
  /// Follows who waits for whom from the ranks that have not arrived. Returns a circle that ends at this
  /// rank.
  std::string follow(const FlightStatus& self, Statuses& known, Look& look);

  const FlightRecorder& own_;
  std::size_t group_;
  std::uint64_t sequence_;
  std::chrono::system_clock::time_point created_;  ///< this rank's record
  std::map<int, std::uint64_t> progress_;          ///< by rank, at the last look
  std::string suspicion_;                          ///< of the last look
};

}  // namespace amaxscope
