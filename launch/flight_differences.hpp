// The first call of a group in which ranks did different things. Inside of flight_diagnosis.
#pragma once

#include <vector>

#include "launch/flight_diagnosis.hpp"

namespace amaxscope::launch {

/// One finding for each group whose ranks differ, by when the differing calls began.
std::vector<FlightFinding> different_calls(const std::vector<FlightRank>& ranks);

/// "call 17 of tp/amax (ranks 0-3)"
std::string name_of_call(const FlightGroup& group, std::uint64_t sequence);

}  // namespace amaxscope::launch
