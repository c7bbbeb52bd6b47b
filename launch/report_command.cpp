// `amaxscope report`: the verdict on a run, from what it left in its log directory.
#include <fmt/format.h>

#include "core/error.hpp"
#include "launch/commands.hpp"
#include "report/verdict_text.hpp"

namespace amaxscope::launch {

namespace {

struct ReportOptions {
  std::string directory;
  bool text = false;
  bool json = false;
};

ExitStatus status_of(report::Outcome outcome) {
  switch (outcome) {
    case report::Outcome::kHealthy:
      return kDone;
    case report::Outcome::kNoData:
      return kBadInput;
    default:
      return kAnswerIsNo;
  }
}

ExitStatus run_report(const ReportOptions& options) {
  AMAXSCOPE_CHECK(
      options.text || options.json, ErrorCode::kUsage,
      "the page of `report` is not built yet in this version; --text gives the verdict on the terminal, "
      "--json for programs");
  const report::Verdict verdict = report::judge(options.directory);
  fmt::print("{}", options.json ? report::as_json(verdict) + "\n" : report::as_text(verdict));
  return status_of(verdict.outcome);
}

}  // namespace

Command add_report(CLI::App& app) {
  CLI::App* subcommand =
      app.add_subcommand("report", "the verdict on a run: what is wrong, where, since when, what to do");
  auto options = std::make_shared<ReportOptions>();
  subcommand->add_option("DIR", options->directory, "the log directory of a run (--log-dir)")
      ->required()
      ->type_name("");
  CLI::Option* text = subcommand->add_flag("--text", options->text, "the verdict on the terminal");
  subcommand->add_flag("--json", options->json, "the verdict as one JSON object with a version, for programs")
      ->excludes(text);
  subcommand->footer(
      "Without --text or --json: the page of the run, not built yet.\n"
      "Exit 0: healthy in all that was measured. 1: something was found, or something is wrong and it cannot "
      "be told what.\n"
      "2: nothing was recorded (no data), or DIR is no directory.");
  return {.app = subcommand, .run_alone = [options] { return run_report(*options); }};
}

}  // namespace amaxscope::launch
