// What is not the same on all ranks of a job, and what of it matters. Pure functions over the ranks' reports.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "launch/rank_report.hpp"

namespace amaxscope::launch {

struct Difference {
  std::string what;  ///< "NCCL_DEBUG", "MPI", "config"
  /// Each value with its ranks, that of the most ranks first; ranks ascending.
  std::vector<std::pair<std::string, std::vector<int>>> values;
  /// Such ranks would compute or talk differently. Otherwise it is only worth knowing.
  bool matters = true;
  friend bool operator==(const Difference&, const Difference&) = default;
};

/// Versions, variables, the config; then limits and numbers of cores, which matter less.
std::vector<Difference> differences(const std::vector<RankReport>& by_rank);

/// What, which ranks, which value: a line for each value; heading first.
std::vector<std::vector<std::string>> difference_rows(const std::vector<Difference>& differences);

/// "NCCL_DEBUG=INFO": the variables that all ranks have alike.
std::vector<std::string> common_settings(const std::vector<RankReport>& by_rank);

/// Lines on what may get in the way: small /dev/shm, clocks that differ by a second, the ranks' own warnings.
std::vector<std::string> notes_on(const std::vector<RankReport>& by_rank);

}  // namespace amaxscope::launch
