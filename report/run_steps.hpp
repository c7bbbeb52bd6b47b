// The steps of a run in the order of their iterations, over the files of all ranks together. Internal to
// report/. One thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "report/metrics_file.hpp"
#include "report/records.hpp"

namespace amaxscope::report {

struct Step {
  std::int64_t iteration = 0;
  std::vector<RecordLine> records;  ///< the lowest rank's first
  std::map<std::string, double> scalars;
};

class RunSteps {
 public:
  /// Throws Error(kInput) when log_dir is no directory.
  explicit RunSteps(const std::filesystem::path& log_dir);
  ~RunSteps();
  RunSteps(const RunSteps&) = delete;
  RunSteps& operator=(const RunSteps&) = delete;

  /// The next iteration that any rank completed; steps that were cut off are passed by. None: the end.
  std::optional<Step> next();
  /// How the reading went; whole after the end.
  [[nodiscard]] const Reading& reading() const noexcept { return reading_; }

 private:
  struct File;
  Reading reading_;
  std::vector<std::unique_ptr<File>> files_;
};

}  // namespace amaxscope::report
