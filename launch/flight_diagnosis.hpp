// What the flight records of a job's ranks say together: who waits for whom, and where ranks first part. Pure
// functions of what was read.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "launch/flight_rank.hpp"

namespace amaxscope::launch {

struct FlightFinding {
  /// "call 17 of tp/amax (ranks 0-3)"; empty for what concerns no call.
  std::string call;
  /// What each of the ranks concerned does there.
  std::vector<std::pair<std::vector<int>, std::string>> sides;
  std::vector<int> suspects;  ///< ascending
  std::string meaning;        ///< one sentence, and what to do
  std::chrono::system_clock::time_point since;
};

/// By importance: ranks in different calls, then calls that do not complete by when they began, then ranks
/// that are gone, stopped, failed or detached and not named before. Empty: nothing wrong to be seen.
/// stuck_after: for how long a running rank may wait or be silent before it counts as stuck.
std::vector<FlightFinding> diagnose(const std::vector<FlightRank>& ranks,
                                    std::chrono::system_clock::time_point now,
                                    std::chrono::system_clock::duration stuck_after);

}  // namespace amaxscope::launch
