// One rank of a job as its flight record and this machine show it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "collectives/flight_process.hpp"
#include "collectives/flight_record.hpp"

namespace amaxscope::launch {

struct FlightRank {
  int rank = 0;
  std::optional<FlightRecord> record;  ///< none: see trouble
  std::string trouble;
  ProcessState process = ProcessState::kUnknown;
};

/// Reads the file of the rank and looks for its process. Never throws for what is wrong with the file.
FlightRank read_rank(const std::filesystem::path& directory, int rank);

/// Whether its process has gone without having finished, as far as this machine can tell.
bool has_died(const FlightRank& rank) noexcept;

}  // namespace amaxscope::launch
