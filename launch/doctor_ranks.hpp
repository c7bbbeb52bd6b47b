// What each rank of a `doctor` job finds out about itself, on every rank.
#pragma once

#include <string>
#include <vector>

#include "launch/job.hpp"
#include "launch/rank_report.hpp"

namespace amaxscope::launch {

/// The reports of all ranks, by rank. Collective; fails the job when a rank cannot read its config. `config`
/// is the path of a debug config, or empty.
std::vector<RankReport> reports_of_ranks(Job& job, const std::string& config);

}  // namespace amaxscope::launch
