// What a run left in its log directory, read as a stream. The files are untrusted: of another version, cut
// off, or of anybody. What cannot be read is counted and said, and nothing of a file is kept but the line at
// hand.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace amaxscope::report {

/// A config as it was in use, from an iteration on.
struct ConfigText {
  std::int64_t iteration = 0;
  std::string source;
  std::string text;
};

/// One run of run.json. A directory holds several when a run went on from a saved state.
struct RunInfo {
  std::string run_id;
  bool closed = false;
  std::string start;  ///< UTC
  std::int64_t first_iteration = 0;
  std::optional<std::int64_t> last_iteration;
  std::int64_t world_size = 1;
  std::map<std::string, std::int64_t> parallel;  ///< tp, pp, ...
  std::map<std::string, std::string> options;    ///< of the session and the trainer
  std::string config_source;
  std::string config_digest;
  std::string config_text;                 ///< cut off when it is long
  std::vector<ConfigText> config_changes;  ///< configs that took its place while the run went on
  std::map<std::string, std::vector<std::string>> section_layers;  ///< section -> layers it matched
  std::vector<std::string> alters_numerics;
  std::vector<std::string> other_paths;  ///< layers that ran another code path because of debugging
};

/// A line with statistics of one tensor at one iteration.
struct RecordLine {
  std::int64_t iteration = 0;
  std::string layer;
  std::string tensor;
  std::string phase;
  std::string recipe;
  std::string format;               ///< empty: not said
  std::int64_t rank = 0;            ///< whose file it is from
  std::vector<std::int64_t> group;  ///< ranks that the numbers are over; empty: not said
  std::string layout;
  std::map<std::string, double> stats;
  std::map<std::string, std::string> formats;             ///< of what-ifs, by statistic
  std::map<std::string, std::vector<std::string>> flags;  ///< by statistic
  [[nodiscard]] bool has_flag(const std::string& stat, const std::string& flag) const;
};

struct FindingLine {
  std::int64_t iteration = 0;
  std::string check;
  std::string layer;
  std::string tensor;
  std::string phase;
  std::int64_t microbatch = 0;
  std::vector<std::int64_t> ranks;
  std::string what;
  std::map<std::string, std::string> details;
};

/// Takes what is read, in the order of the files (rank 0 first) and of their lines.
class RecordVisitor {
 public:
  virtual ~RecordVisitor() = default;
  virtual void record(const RecordLine& line) = 0;
  virtual void scalars(std::int64_t iteration, const std::map<std::string, double>& values) = 0;
  virtual void finding(const FindingLine& line) = 0;
  /// A run begins in the file: what came before without an end of its step was cut off.
  virtual void run_begins() {}
  virtual void end_of_step(std::int64_t /*iteration*/) {}
};

/// How the reading went.
struct Reading {
  std::vector<RunInfo> runs;  ///< in the order they were started
  int files = 0;
  std::uint64_t lines = 0;
  std::uint64_t unreadable = 0;       ///< lines that are no JSON of the known shape, or were cut off
  std::string first_unreadable;       ///< "metrics/rank_0.jsonl:12"
  std::vector<std::string> problems;  ///< of whole files: missing, cannot be opened, another version
  std::uint64_t completed_steps = 0;  ///< end-of-step markers, over all files
  std::optional<std::int64_t> first_step;
  std::optional<std::int64_t> last_step;
};

/// Throws Error(kInput) when it is no directory.
void require_log_directory(const std::filesystem::path& log_dir);

/// Reads run.json and metrics/rank_*.jsonl of log_dir, each once. Lines of more than 4 MiB count as
/// unreadable. Throws Error(kInput) when log_dir is no directory, and nothing else for what is in it.
Reading read_records(const std::filesystem::path& log_dir, RecordVisitor& visitor);

}  // namespace amaxscope::report
