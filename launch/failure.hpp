// Failures as the user reads them, and the exit status they mean. Pure functions.
#pragma once

#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "launch/exit_status.hpp"

namespace amaxscope::launch {

struct Failure {
  ExitStatus status = kDone;
  std::string message;  ///< one line, or several for a config with several errors
  friend bool operator==(const Failure&, const Failure&) = default;
};

/// kBadInput for what the user can mend, else kAnswerIsNo.
Failure describe(const std::exception_ptr& exception) noexcept;

/// "amaxscope: message", ended by a newline; errors that begin with their place in a file stand as they are.
std::string error_lines(std::string_view message);

/// The failures of a job by rank (status kDone: none), each distinct message once: as it is when all ranks
/// share it, else led by its ranks. Empty when nobody failed.
std::string job_error_lines(const std::vector<Failure>& by_rank);

/// "rank 3", "ranks 0, 2", "ranks 0-5"
std::string rank_list(const std::vector<int>& ranks);

}  // namespace amaxscope::launch
