// One file of metrics/, read as far as it has grown: again and again for a run that goes on. Internal to
// report/. One thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "report/line_reader.hpp"
#include "report/records.hpp"

namespace amaxscope::report {

class MetricsFile {
 public:
  /// name: for messages, "metrics/rank_0.jsonl". A file that is not there is tried again at every reading.
  MetricsFile(std::filesystem::path path, std::string name, std::uint64_t rank)
      : lines_(std::move(path)), name_(std::move(name)), rank_(static_cast<std::int64_t>(rank)) {}

  /// Gives whole lines up to and including the next that ends a step. False: there is no further whole line
  /// for now. What cannot be read is counted in reading; a file that cannot is a problem there, once.
  bool read_step(Reading& reading, RecordVisitor& visitor);
  /// Nothing more will come: what is left without the end of a line was cut off.
  void finish(Reading& reading);
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// False as well for a file whose problem was said.
  [[nodiscard]] bool is_missing() const noexcept { return !opened_ && !refused_; }

 private:
  bool open(Reading& reading);
  void count_unreadable(Reading& reading);

  LineReader lines_;
  std::string name_;
  std::int64_t rank_;
  bool opened_ = false;
  bool refused_ = false;  ///< what has this name is no file; that was said
  bool said_ = false;     ///< that the file is read no further
  std::uint64_t line_ = 0;
  bool other_version_ = false;
};

/// R of rank_R.jsonl; none for another name.
std::optional<std::uint64_t> rank_of_metrics(const std::filesystem::path& file);
/// rank_R.jsonl of a folder by R.
std::map<std::uint64_t, std::filesystem::path> metrics_files(const std::filesystem::path& folder);

}  // namespace amaxscope::report
