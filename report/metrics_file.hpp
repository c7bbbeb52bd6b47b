// One file of metrics/, read as far as it has grown: again and again for a run that goes on. Internal to
// report/. One thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>

#include "report/records.hpp"

namespace amaxscope::report {

class MetricsFile {
 public:
  /// name: for messages, "metrics/rank_0.jsonl". A file that is not there is tried again at every reading.
  MetricsFile(std::filesystem::path path, std::string name, std::uint64_t rank)
      : path_(std::move(path)), name_(std::move(name)), rank_(static_cast<std::int64_t>(rank)) {}

  /// Gives whole lines up to and including the next that ends a step. False: there is no further whole line
  /// for now. What cannot be read is counted in reading.
  bool read_step(Reading& reading, RecordVisitor& visitor);
  /// Nothing more will come: what is left without the end of a line was cut off.
  void finish(Reading& reading);
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] bool opened() const noexcept { return opened_; }

 private:
  bool fill();
  std::optional<std::string> next_line(bool& whole);
  void count_unreadable(Reading& reading);

  std::filesystem::path path_;
  std::string name_;
  std::int64_t rank_;
  std::ifstream file_;
  bool opened_ = false;
  std::string buffer_;
  std::size_t at_ = 0;        ///< of the next line in buffer_
  std::size_t searched_ = 0;  ///< no end of a line between at_ and here
  bool too_long_ = false;     ///< the line at hand, whose beginning was thrown away
  std::uint64_t line_ = 0;
  bool other_version_ = false;
};

/// R of rank_R.jsonl; none for another name.
std::optional<std::uint64_t> rank_of_metrics(const std::filesystem::path& file);
/// rank_R.jsonl of a folder by R.
std::map<std::uint64_t, std::filesystem::path> metrics_files(const std::filesystem::path& folder);

}  // namespace amaxscope::report
