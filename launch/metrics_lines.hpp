// One file of metrics/ line by line. Internal to metrics_check.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>

#include "launch/metrics_check.hpp"

namespace amaxscope::launch {

/// What must hold: a file begins with an opening line; the lines of a step (records, scalars, findings) are
/// of its iteration and are followed by its marker, which has their number; iterations only grow; every line
/// is a whole JSON object of the schema; a closed run's lines end with the one that ends a run. An opening
/// line in the middle is a later run that went on: before it a step without a marker and a line that was cut
/// off are what a crash leaves, when the run before is not marked closed.
class MetricsLines {
 public:
  /// name: for messages. check: gets problems, notes and counts; its runs are known already.
  MetricsLines(std::string name, MetricsCheck& check) : name_(std::move(name)), check_(check) {}

  void read(const std::filesystem::path& path);
  [[nodiscard]] const std::set<std::string>& layers() const noexcept { return layers_; }
  /// Iterations whose marker was found.
  [[nodiscard]] const std::set<std::int64_t>& steps() const noexcept { return steps_; }
  /// Ids of the runs whose last line was found.
  [[nodiscard]] const std::set<std::string>& ended() const noexcept { return ended_; }
  /// Ids of the runs that have an opening line.
  [[nodiscard]] const std::set<std::string>& opened() const noexcept { return opened_; }

 private:
  void line(const std::string& text, bool whole);
  void opening(const nlohmann::json& object);
  void marker(const nlohmann::json& object, std::int64_t iteration);
  void content(const nlohmann::json& object, std::int64_t iteration);
  void end_of_run(std::int64_t iteration);
  /// What must hold where a run's lines end: at the end of the file or where a later run begins.
  void leave_run(bool at_end_of_file);
  [[nodiscard]] const CheckedRun* current() const;
  void problem(std::string_view what) { problem_at(line_, what); }
  void problem_at(std::uint64_t line, std::string_view what);

  using Key =
      std::tuple<std::string, std::string, std::string, std::string>;  ///< layer, tensor, phase, group
  std::string name_;
  MetricsCheck& check_;
  std::uint64_t line_ = 0;
  std::string run_id_;             ///< empty: no opening line yet
  std::uint64_t broken_line_ = 0;  ///< not JSON, to be judged when what follows is known; 0: none
  std::uint64_t pending_ = 0;      ///< lines since the last marker
  std::uint64_t pending_findings_ = 0;
  std::uint64_t pending_line_ = 0;  ///< the first of them
  std::optional<std::int64_t> pending_iteration_;
  std::set<Key> seen_;  ///< records of the step
  std::set<std::string> layers_;
  std::set<std::int64_t> steps_;
  std::set<std::string> opened_;
  std::set<std::string> ended_;
  std::uint64_t problems_ = 0;
};

}  // namespace amaxscope::launch
