#include "launch/metrics_check.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.hpp"
#include "launch/json_fields.hpp"
#include "launch/metrics_lines.hpp"
#include "report/metrics_file.hpp"
#include "report/words.hpp"
#include "runtime/sinks/run_file.hpp"
#include "runtime/storage/file.hpp"
#include "runtime/storage/json_limits.hpp"

namespace amaxscope::launch {

namespace {

using nlohmann::json;

void read_run(const json& entry, std::size_t index, MetricsCheck& check) {
  CheckedRun run;
  if (!entry.is_object()) {
    check.problems.push_back(fmt::format("run.json: run {} is no object", index));
    return;
  }
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
  run.world_size = integer_field(entry, "world_size").value_or(0);
  if (run.world_size < 1) {
    check.problems.push_back(fmt::format("run.json: run {} has no world_size of 1 or more", run.run_id));
  }
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
  std::string text;
  try {
    text = read_bounded(path, RunDescription::kMostBytes);
  } catch (const Error& error) {
    std::error_code unknown;
    check.problems.emplace_back(std::filesystem::exists(path, unknown)
                                    ? fmt::format("run.json: is not read: {}", error.what())
                                    : "run.json: is not there, or cannot be read");
    return;
  }
  if (const std::string excess = json_excess(text); !excess.empty()) {
    check.problems.emplace_back("run.json: is not read: it " + excess);
    return;
  }
  const json content = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!content.is_object() || !content.contains("runs") || !content["runs"].is_array()) {
    check.problems.emplace_back(text.empty() ? "run.json: is empty"
                                             : "run.json: is cut off, or no description of a run");
    return;
  }
  if (content.value("schema_version", json()) != RunDescription::kSchemaVersion) {
    check.problems.push_back(
        fmt::format("run.json: schema version {}, this program reads {}",
                    report::printable(content.value("schema_version", json()).dump(), 60),
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
  std::ranges::sort(files, [](const auto& a, const auto& b) {
    const std::string x = a.filename().string();
    const std::string y = b.filename().string();
    return x.size() != y.size() ? x.size() < y.size() : x < y;  // rank_2 before rank_10
  });
  return files;
}

/// Every rank of a closed run has a file that says so, whether or not it had anything to record.
void find_missing_ranks(const std::map<std::string, std::set<std::int64_t>>& ranks_of, MetricsCheck& check) {
  constexpr std::size_t kShown = 8;
  for (const CheckedRun& run : check.runs) {
    const auto found = ranks_of.find(run.run_id);
    std::set<std::int64_t> there = found != ranks_of.end() ? found->second : std::set<std::int64_t>();
    there.erase(there.lower_bound(run.world_size), there.end());  // of ranks that the run did not have
    const std::int64_t count = run.world_size - static_cast<std::int64_t>(there.size());
    if (!run.closed || count <= 0) continue;
    std::vector<std::string> missing;
    for (std::int64_t rank = 0; rank < run.world_size && missing.size() < kShown; ++rank) {
      if (!there.contains(rank)) missing.push_back(fmt::format("rank_{}.jsonl", rank));
    }
    const std::int64_t more = count - static_cast<std::int64_t>(missing.size());
    check.problems.push_back(fmt::format("metrics/: run {} had {} rank{}; nothing of it is in {}{}",
                                         run.run_id, run.world_size, run.world_size == 1 ? "" : "s",
                                         fmt::join(missing, ", "),
                                         more > 0 ? fmt::format(" and {} more", more) : ""));
  }
}

}  // namespace

MetricsCheck check_metrics(const std::filesystem::path& log_dir) {
  report::require_log_directory(log_dir);
  MetricsCheck check;
  read_runs(log_dir / "run.json", check);
  std::set<std::string> layers;
  std::set<std::int64_t> steps;
  std::map<std::string, std::set<std::int64_t>> ranks_of;
  for (const std::filesystem::path& path : metrics_files(log_dir / "metrics")) {
    ++check.files;
    MetricsLines lines("metrics/" + path.filename().string(), check);
    lines.read(path);
    layers.insert(lines.layers().begin(), lines.layers().end());
    steps.insert(lines.steps().begin(), lines.steps().end());
    if (const auto rank = report::rank_of_metrics(path)) {
      for (const std::string& run : lines.opened()) ranks_of[run].insert(static_cast<std::int64_t>(*rank));
    }
  }
  find_missing_ranks(ranks_of, check);
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
