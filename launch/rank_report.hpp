// What `doctor` asks every rank about itself. Data and its way through JSON; pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace amaxscope::launch {

struct RankReport {
  std::string host = {};
  int local_rank = 0;  ///< among the ranks of the same machine, from MPI
  int local_ranks = 1;
  std::string device = "cpu";    ///< the one that it would use: "cpu", "cuda:0"
  std::string device_uuid = {};  ///< empty on the CPU
  int cores = 0;                 ///< cores that the rank may use
  std::string core_list = {};    ///< which these are: "0-3"
  std::map<std::string, std::string> versions =
      {};                                          ///< of what computes and talks: "MPI" -> "Open MPI v4.1.4"
  std::map<std::string, std::string> limits = {};  ///< "open files" -> "1024"
  std::uint64_t shared_memory_bytes = 0;           ///< /dev/shm; 0: there is none
  std::uint64_t shared_memory_free_bytes = 0;
  double clock_offset_seconds = 0.0;  ///< how far this clock is certainly ahead of rank 0's; 0: it may agree
  std::vector<std::string> environment = {};  ///< "NCCL_DEBUG=INFO", sorted
  std::string warning = {};                   ///< of the rank itself; empty: none
  std::string config_digest = {};             ///< empty: no config given
  friend bool operator==(const RankReport&, const RankReport&) = default;
};

/// One line of JSON, and back.
std::string to_text(const RankReport& report);
RankReport parse_rank_report(const std::string& text);

/// A line for each rank: where it runs and what it may use; the config's digest if any rank has one; heading
/// first.
std::vector<std::vector<std::string>> rank_rows(const std::vector<RankReport>& by_rank);

}  // namespace amaxscope::launch
