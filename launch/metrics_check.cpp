#include "launch/metrics_check.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.hpp"
#include "launch/json_fields.hpp"
#include "launch/metrics_lines.hpp"
#include "runtime/sinks/run_file.hpp"

namespace amaxscope::launch {

namespace {

using nlohmann::json;

void read_run(const json& entry, std::size_t index, MetricsCheck& check) {
  CheckedRun run;
  run.run_id = text_field(entry, "run_id").value_or("");
  const std::string state = text_field(entry, "state").value_or("");
  if (run.run_id.empty() || (state != "closed" && state != "unclosed")) {
    check.problems.push_back(
        fmt::format("run.json: run {} has no run_id, or no state \"closed\" or \"unclosed\"", index));
    return;
  }
  run.closed = state == "closed";
  run.first_iteration = integer_field(entry, "first_iteration").value_or(0);
  run.last_iteration = integer_field(entry, "last_iteration");
  if (run.closed && !run.last_iteration) {
    check.problems.push_back(fmt::format("run.json: run {} is closed and has no last_iteration", run.run_id));
  }
  if (!run.closed) {
    check.notes.push_back(fmt::format(
        "run {} is marked unclosed: it is still going on, was cut off or had stopped observing; what it had "
        "not completed is missing",
        run.run_id));
  }
  check.runs.push_back(std::move(run));
}

void read_runs(const std::filesystem::path& path, MetricsCheck& check) {
  std::ifstream file(path, std::ios::binary);
  if (!file.is_open()) {
    check.problems.emplace_back("run.json: is not there, or cannot be read");
    return;
  }
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const json content = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!content.is_object() || !content.contains("runs") || !content["runs"].is_array()) {
    check.problems.emplace_back(text.empty() ? "run.json: is empty"
                                             : "run.json: is cut off, or no description of a run");
    return;
  }
  if (content.value("schema_version", json()) != RunDescription::kSchemaVersion) {
    check.problems.push_back(fmt::format("run.json: schema version {}, this program reads {}",
                                         content.value("schema_version", json()).dump(),
                                         RunDescription::kSchemaVersion));
    return;
  }
  std::size_t index = 0;
  for (const json& entry : content["runs"]) read_run(entry, index++, check);
  if (content["runs"].empty()) check.problems.emplace_back("run.json: describes no run");
}

std::vector<std::filesystem::path> metrics_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".jsonl") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

}  // namespace

MetricsCheck check_metrics(const std::filesystem::path& log_dir) {
  AMAXSCOPE_CHECK(std::filesystem::is_directory(log_dir), ErrorCode::kInput,
                  "{}: no directory; --metrics wants the log directory of a run", log_dir.string());
  MetricsCheck check;
  read_runs(log_dir / "run.json", check);
  std::set<std::string> layers;
  std::set<std::int64_t> steps;
  for (const std::filesystem::path& path : metrics_files(log_dir / "metrics")) {
    ++check.files;
    MetricsLines lines("metrics/" + path.filename().string(), check);
    lines.read(path);
    layers.insert(lines.layers().begin(), lines.layers().end());
    steps.insert(lines.steps().begin(), lines.steps().end());
  }
  check.layers = layers.size();
  check.steps = steps.size();
  if (!steps.empty()) {
    check.first_iteration = *steps.begin();
    check.last_iteration = *steps.rbegin();
  }
  if (check.files == 0) {
    check.problems.emplace_back("metrics/: no file rank_R.jsonl: nothing was recorded");
  } else if (steps.empty()) {
    check.problems.emplace_back("metrics/: no completed step in any file: nothing was recorded");
  }
  return check;
}

}  // namespace amaxscope::launch
