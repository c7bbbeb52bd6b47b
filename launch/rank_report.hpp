// What `doctor` asks every rank, and what it makes of the answers. Pure functions.
#pragma once

#include <string>
#include <vector>

namespace amaxscope::launch {

struct RankReport {
  std::string host;
  int local_rank = 0;                    ///< among the ranks of the same machine
  int cores = 0;                         ///< cores the rank may use
  std::vector<std::string> environment;  ///< "NCCL_DEBUG=INFO", sorted
  std::string config_digest;             ///< empty: no config given
  friend bool operator==(const RankReport&, const RankReport&) = default;
};

std::string to_text(const RankReport& report);
RankReport parse_rank_report(const std::string& text);

/// Rank, host, local rank, cores, and the config's digest if any rank has one; heading first.
std::vector<std::vector<std::string>> rank_rows(const std::vector<RankReport>& by_rank);

/// One line for each variable or config that is not the same on all ranks, naming the ranks of each value.
std::vector<std::string> differences(const std::vector<RankReport>& by_rank);

}  // namespace amaxscope::launch
