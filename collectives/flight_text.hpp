// Flight records in words, for reports. Pure functions, but for what /proc says of a process.
#pragma once

#include <chrono>
#include <string>

#include "collectives/flight_record.hpp"

namespace amaxscope {

/// "tp/amax call 4: max amax 3 x u32, ..., iteration 7 - completed"
std::string describe_in_group(const FlightCall& call, const FlightStatus& status);

/// The call that the rank is blocked in; null when it is in none, or when its entry was being written.
const FlightCall* current_call(const FlightRecord& record);

/// "in tp/amax call 5: max amax ..., iteration 7, for 12.3 s" or "last seen in step(), iteration 7, 12.3 s
/// ago", after what is to be said of the process and of its state.
std::string whereabouts(const FlightRecord& record, std::chrono::system_clock::time_point now);

}  // namespace amaxscope
