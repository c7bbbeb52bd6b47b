#include "report/records.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "report/metrics_file.hpp"
#include "report/run_info.hpp"

namespace amaxscope::report {

bool RecordLine::has_flag(const std::string& stat, const std::string& flag) const {
  const auto found = flags.find(stat);
  return found != flags.end() && std::ranges::find(found->second, flag) != found->second.end();
}

void require_log_directory(const std::filesystem::path& log_dir) {
  std::error_code error;
  AMAXSCOPE_CHECK(std::filesystem::is_directory(log_dir, error), ErrorCode::kInput,
                  "{}: no directory; the log directory of a run is wanted (what --log-dir named)",
                  log_dir.string());
}

Reading read_records(const std::filesystem::path& log_dir, RecordVisitor& visitor) {
  require_log_directory(log_dir);
  Reading reading;
  read_run_file(log_dir / "run.json", reading);
  for (const auto& [rank, path] : metrics_files(log_dir / "metrics")) {
    MetricsFile file(path, "metrics/" + path.filename().string(), rank);
    while (file.read_step(reading, visitor)) {
    }
    file.finish(reading);
    if (file.is_missing()) reading.problems.push_back(file.name() + " cannot be read");
  }
  if (reading.files == 0) reading.problems.emplace_back("metrics/ has no file rank_R.jsonl");
  return reading;
}

}  // namespace amaxscope::report
