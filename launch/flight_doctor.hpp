// `amaxscope doctor --flight DIR`: what the flight records in a directory say of a job that runs, hangs or is
// dead. Needs no MPI and takes no part in the job.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "launch/commands.hpp"
#include "launch/flight_rank.hpp"

namespace amaxscope::launch {

struct FlightDoctorOptions {
  std::string directory;  ///< with rank_R.flight files, or a log directory with flight/ in it
  double stuck_after_seconds = 10.0;
  bool json = false;
};

/// Every rank of the job, whether it has a record or not, by rank. directory: as FlightDoctorOptions has it.
/// Throws Error(kInput) when there are no records to be read.
std::vector<FlightRank> flight_ranks(const std::filesystem::path& directory);
/// What the rank is at, in a word or two: "training", "in a collective", "stopped", "gone". It has a record.
std::string flight_state(const FlightRank& rank);

/// Prints the table of the ranks and what is wrong. kAnswerIsNo when something is. Throws Error(kInput) when
/// there are no records to be read.
ExitStatus flight_doctor(const FlightDoctorOptions& options);

}  // namespace amaxscope::launch
