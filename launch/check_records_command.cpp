// `amaxscope check-records`: whether what a run wrote is whole, and of the schema.
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "launch/commands.hpp"
#include "launch/metrics_check.hpp"
#include "launch/terminal.hpp"
#include "runtime/sinks/run_file.hpp"

namespace amaxscope::launch {

namespace {

void print_text(const std::string& name, const MetricsCheck& found) {
  for (const CheckedRun& run : found.runs) {
    say(stdout, fmt::format("run {}: {}, {} rank{}, from iteration {}{}\n", run.run_id,
                            run.closed ? "closed" : "unclosed", run.world_size,
                            run.world_size == 1 ? "" : "s", run.first_iteration,
                            run.last_iteration ? fmt::format(" to {}", *run.last_iteration) : std::string()));
  }
  if (found.first_iteration) {
    fmt::print(
        "{}: {} records of {} layers and {} findings, in {} steps from iteration {} to {}, in {} file{}\n",
        name, found.records, found.layers, found.findings, found.steps, *found.first_iteration,
        *found.last_iteration, found.files, found.files == 1 ? "" : "s");
  }
  fmt::print("{}: {}\n", name,
             found.problems.empty()
                 ? "whole"
                 : fmt::format("{} problem{}", found.problems.size(), found.problems.size() == 1 ? "" : "s"));
}

void print_json(const std::string& name, const MetricsCheck& found) {
  nlohmann::ordered_json json = {{"metrics", name},
                                 {"schema_version", RunDescription::kSchemaVersion},
                                 {"whole", found.problems.empty()},
                                 {"problems", found.problems},
                                 {"notes", found.notes},
                                 {"files", found.files},
                                 {"records", found.records},
                                 {"findings", found.findings},
                                 {"layers", found.layers},
                                 {"steps", found.steps},
                                 {"runs", nlohmann::ordered_json::array()}};
  if (found.first_iteration) json["iterations"] = {*found.first_iteration, *found.last_iteration};
  for (const CheckedRun& run : found.runs) {
    json["runs"].push_back({{"run_id", run.run_id}, {"closed", run.closed}, {"world_size", run.world_size}});
  }
  fmt::print("{}\n", json.dump(1, ' ', true, nlohmann::ordered_json::error_handler_t::replace));
}

}  // namespace

ExitStatus report_metrics(const std::filesystem::path& log_dir, bool json) {
  const MetricsCheck found = check_metrics(log_dir);
  for (const std::string& note : found.notes) say(stderr, note + "\n");
  for (const std::string& problem : found.problems) say(stderr, (log_dir / problem).string() + "\n");
  json ? print_json(log_dir.string(), found) : print_text(log_dir.string(), found);
  return found.problems.empty() ? kDone : kAnswerIsNo;
}

Command add_check_records(CLI::App& app) {
  struct Options {
    std::string directory;
    bool json = false;
  };
  CLI::App* subcommand = app.add_subcommand(
      "check-records", "whether the records of a run are whole and of the documented schema");
  auto options = std::make_shared<Options>();
  subcommand->add_option("DIR", options->directory, "the log directory of a run (--log-dir)")
      ->required()
      ->type_name("");
  subcommand->add_flag("--json", options->json, "one JSON object on standard output");
  subcommand->footer(
      "Reads run.json and metrics/rank_*.jsonl (schema: docs/records.md). What is wrong stands on stderr as "
      "file:line: what.\n"
      "Exit 0: whole. 1: empty, cut off, of another schema version, wrong types, steps out of order or "
      "miscounted, ranks missing.\n"
      "2: DIR is no directory. A run that is not closed is named and is no error: it may still go on.");
  return {.app = subcommand,
          .run_alone = [options] { return report_metrics(options->directory, options->json); }};
}

}  // namespace amaxscope::launch
