// Reads the flight record of a rank that runs, hangs or is dead. Takes nothing on trust: the file may be of
// anybody. Reading is three reads of a small file (see flight_layout.hpp); it disturbs nobody.
#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include "collectives/flight_record.hpp"

namespace amaxscope {

/// Everything, or only what stands before the entries. Throws Error(kInput), naming the file, when it cannot
/// be read or is no flight record; entries that are being written are left out.
FlightRecord read_flight_record(const std::filesystem::path& file);
FlightStatus read_flight_status(const std::filesystem::path& file);

/// The same bytes, taken three times one after the other.
using FlightSnapshots = std::array<std::span<const std::byte>, 3>;
FlightRecord decode_flight_record(const FlightSnapshots& taken, const std::string& source);
FlightStatus decode_flight_status(const FlightSnapshots& taken, const std::string& source);

}  // namespace amaxscope
