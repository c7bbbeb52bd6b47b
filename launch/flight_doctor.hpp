// `amaxscope doctor --flight DIR`: what the flight records in a directory say of a job that runs, hangs or is
// dead. Needs no MPI and takes no part in the job.
#pragma once

#include <string>

#include "launch/commands.hpp"

namespace amaxscope::launch {

struct FlightDoctorOptions {
  std::string directory;  ///< with rank_R.flight files, or a log directory with flight/ in it
  double stuck_after_seconds = 10.0;
  bool json = false;
};

/// Prints the table of the ranks and what is wrong. kAnswerIsNo when something is. Throws Error(kInput) when
/// there are no records to be read.
ExitStatus flight_doctor(const FlightDoctorOptions& options);

}  // namespace amaxscope::launch
