// What `doctor` found, as a text and as JSON. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "launch/rank_comparison.hpp"
#include "launch/rank_report.hpp"

namespace amaxscope::launch {

struct Findings {
  std::vector<std::vector<std::string>> machine;  ///< {what, what the leader's machine has}
  std::vector<RankReport> ranks;
  std::vector<std::string> notes;
  std::vector<std::string> problems;  ///< what is in the way of a job, beside the differences that matter
};

/// True when nothing is in the way of a job.
[[nodiscard]] bool all_well(const Findings& findings);

/// Tables of the machine, the ranks and what differs, then the settings, notes and problems.
std::string as_text(const Findings& findings);

/// One object in one line: machine, ranks (as rank_report has them, with their number), differences (what,
/// matters, values with their ranks), notes, problems, well.
std::string as_json(const Findings& findings);

}  // namespace amaxscope::launch
