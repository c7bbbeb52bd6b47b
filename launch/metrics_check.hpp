// Whether what a run wrote (run.json, metrics/*.jsonl) is whole and of the schema of docs/records.md:
// `amaxscope check-records`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "launch/exit_status.hpp"

namespace amaxscope::launch {

struct CheckedRun {
  std::string run_id;
  bool closed = false;
  std::int64_t world_size = 0;
  std::int64_t first_iteration = 0;
  std::optional<std::int64_t> last_iteration;  ///< of a closed one
  friend bool operator==(const CheckedRun&, const CheckedRun&) = default;
};

struct MetricsCheck {
  /// "metrics/rank_0.jsonl:12: what is wrong"; a run is as it was written exactly when there are none. That
  /// nothing was recorded is a problem, too.
  std::vector<std::string> problems;
  /// What is no damage, but should be known: a run that was not closed, a step that a crash cut off and a
  /// later run took up again.
  std::vector<std::string> notes;
  std::vector<CheckedRun> runs;  ///< in the order they were started
  int files = 0;
  std::uint64_t records = 0;
  std::uint64_t findings = 0;
  std::uint64_t steps = 0;                      ///< iterations with something recorded, over all files
  std::uint64_t layers = 0;                     ///< names that have a record
  std::optional<std::int64_t> first_iteration;  ///< of what is recorded
  std::optional<std::int64_t> last_iteration;
};

/// Prints what check_metrics() says of it, problems and notes on stderr. 1 when there are problems.
ExitStatus report_metrics(const std::filesystem::path& log_dir, bool json);

/// Reads every file of the log directory once, line by line. Throws Error(kInput) when it is no directory.
MetricsCheck check_metrics(const std::filesystem::path& log_dir);

}  // namespace amaxscope::launch
