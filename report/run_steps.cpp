#include "report/run_steps.hpp"

#include <iterator>

#include "core/error.hpp"
#include "report/run_info.hpp"

namespace amaxscope::report {

struct RunSteps::File final : RecordVisitor {
  File(const std::filesystem::path& path, std::uint64_t rank)
      : file(path, "metrics/" + path.filename().string(), rank) {}

  void record(const RecordLine& line) override { pending.records.push_back(line); }
  void scalars(std::int64_t, const std::map<std::string, double>& values) override {
    pending.scalars.insert(values.begin(), values.end());
  }
  void finding(const FindingLine&) override {}
  void run_begins() override { pending = Step(); }
  void end_of_step(std::int64_t iteration) override {
    pending.iteration = iteration;
    complete = std::move(pending);
    pending = Step();
  }

  void advance(Reading& reading) {
    complete.reset();
    while (!ended && !complete) {
      if (file.read_step(reading, *this)) continue;
      file.finish(reading);
      ended = true;
    }
  }

  MetricsFile file;
  Step pending;
  std::optional<Step> complete;
  bool ended = false;
};

RunSteps::RunSteps(const std::filesystem::path& log_dir) {
  require_log_directory(log_dir);
  read_run_file(log_dir / "run.json", reading_);
  for (const auto& [rank, path] : metrics_files(log_dir / "metrics")) {
    files_.push_back(std::make_unique<File>(path, rank));
    files_.back()->advance(reading_);
  }
  if (files_.empty()) reading_.problems.emplace_back("metrics/ has no file rank_R.jsonl");
}

RunSteps::~RunSteps() = default;

std::optional<Step> RunSteps::next() {
  std::optional<std::int64_t> earliest;
  for (const auto& file : files_) {
    if (file->complete && (!earliest || file->complete->iteration < *earliest)) {
      earliest = file->complete->iteration;
    }
  }
  if (!earliest) return std::nullopt;
  Step step{.iteration = *earliest, .records = {}, .scalars = {}};
  for (const auto& file : files_) {
    if (!file->complete || file->complete->iteration != *earliest) continue;
    std::move(file->complete->records.begin(), file->complete->records.end(),
              std::back_inserter(step.records));
    step.scalars.insert(file->complete->scalars.begin(), file->complete->scalars.end());
    file->advance(reading_);
  }
  return step;
}

}  // namespace amaxscope::report
