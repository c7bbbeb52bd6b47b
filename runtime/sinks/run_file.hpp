// run.json: what `report` and `diff` need to know of a run, written once by the job's rank 0.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace amaxscope {

/// A config that took the place of another while the run went on.
struct ConfigChange {
  std::int64_t iteration = 0;  ///< the first under it
  std::string source;
  std::string text;
  std::string digest;
  std::vector<std::string> alters_numerics;
  std::map<std::string, std::vector<std::string>> section_layers;
};

struct RunDescription {
  static constexpr int kSchemaVersion = 1;
  static constexpr std::uint64_t kMostBytes = 256U << 20;  ///< of a file that is read, or gone on with
  std::string run_id;
  std::string config_source;  ///< the YAML's name as the user gave it; empty without one
  std::string config_text;
  std::string config_digest;  ///< 16 hex digits
  int world_size = 1;
  std::map<std::string, int> parallel;         ///< tp, dp, ...
  std::map<std::string, std::string> options;  ///< of the session and, if it wants, of the trainer
  std::vector<std::string> alters_numerics;    ///< "FakeQuant in section x", empty: observing only
  std::vector<std::string> other_paths;        ///< layers that cannot observe on the normal path, and why
  std::map<std::string, std::vector<std::string>> section_layers;  ///< section -> layers it matched
  std::vector<ConfigChange> config_changes;  ///< the rest is of the config that the run began with
  std::int64_t first_iteration = 0;
  std::chrono::system_clock::time_point start;
};

/// Writes log_dir/run.json whole or not at all; a run that appends to an existing directory adds itself to
/// the file's "runs". Throws Error(kIo).
void write_run_file(const std::filesystem::path& log_dir, const RunDescription& run);

/// Sets the "state" of the run in log_dir/run.json to "closed" (it is "unclosed" until then) and its
/// "last_iteration". Throws Error(kIo), also when the file has no such run.
void mark_run_closed(const std::filesystem::path& log_dir, const std::string& run_id,
                     std::int64_t last_iteration);

}  // namespace amaxscope
