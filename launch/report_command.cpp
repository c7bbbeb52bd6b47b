// `amaxscope report`: the verdict on a run, from what it left in its log directory.
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/error.hpp"
#include "launch/commands.hpp"
#include "launch/terminal.hpp"
#include "report/diff_text.hpp"
#include "report/page/page.hpp"
#include "report/verdict_text.hpp"

namespace amaxscope::launch {

namespace {

struct ReportOptions {
  std::string directory;
  std::string against;
  bool text = false;
  bool json = false;
  std::string html;
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

/// The verdict's sentence and place on one line, and where the page is.
ExitStatus run_page(const ReportOptions& options) {
  const std::filesystem::path file = options.html.empty()
                                         ? std::filesystem::path(options.directory) / "report.html"
                                         : std::filesystem::path(options.html);
  try {
    std::optional<report::Against> against;
    if (!options.against.empty()) against = report::read_against(options.directory, options.against);
    const report::Verdict verdict =
        report::write_page(options.directory, file, against ? &*against : nullptr);
    AMAXSCOPE_CHECK(verdict.outcome != report::Outcome::kNoData, ErrorCode::kInput,
                    "{}: {}; no page is written (--text says what is wrong with the records)",
                    options.directory, verdict.sentence);
    say(stdout, fmt::format("{}\n{}\n", file.string(), report::as_line(verdict)));
    if (against) say(stdout, report::as_short_text(against->diff, options.against));
    return status_of(verdict.outcome);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kIo) throw;
    throw Error(ErrorCode::kInput, fmt::format("{}; --html FILE puts the page elsewhere", error.what()));
  }
}

ExitStatus run_report(const ReportOptions& options) {
  if (!options.text && !options.json) return run_page(options);
  const report::Verdict verdict = report::judge(options.directory);
  std::optional<report::Diff> diff;
  if (!options.against.empty()) diff = report::compare_runs(options.directory, options.against);
  if (options.json) {
    auto json = nlohmann::ordered_json::parse(report::as_json(verdict));
    if (diff) json["against"] = nlohmann::ordered_json::parse(report::as_json(*diff));
    fmt::print("{}\n", json.dump(2, ' ', /*ensure_ascii=*/true));
  } else {
    say(stdout, report::as_text(verdict));
    if (diff) say(stdout, "\n" + report::as_short_text(*diff, options.against));
  }
  return status_of(verdict.outcome);
}

}  // namespace

Command add_report(CLI::App& app) {
  CLI::App* subcommand = app.add_subcommand(
      "report",
      "the verdict on a run: what is wrong, where, since when, what to do; as a page, or on the terminal");
  auto options = std::make_shared<ReportOptions>();
  subcommand->add_option("DIR", options->directory, "the log directory of a run (--log-dir)")
      ->required()
      ->type_name("");
  subcommand
      ->add_option(
          "--against", options->against,
          "the log directory of another run, which may be of another size: where this one parts from it")
      ->type_name("DIR");
  CLI::Option* text = subcommand->add_flag("--text", options->text, "the verdict on the terminal");
  CLI::Option* json =
      subcommand
          ->add_flag("--json", options->json, "the verdict as one JSON object with a version, for programs")
          ->excludes(text);
  subcommand->add_option("-o,--html", options->html, "where the page goes (default DIR/report.html)")
      ->type_name("FILE")
      ->excludes(text)
      ->excludes(json);
  subcommand->footer(
      "Without --text or --json: writes the page of the run, one HTML file that needs no network and no "
      "server, and "
      "prints its path\nand the verdict in one line. An older page of that name is replaced.\n"
      "Exit 0: healthy in all that was measured. 1: something was found, or something is wrong and it cannot "
      "be told what.\n"
      "2: nothing was recorded (no data; no page is written then), DIR is no directory, or the page cannot "
      "be "
      "written.");
  return {.app = subcommand, .run_alone = [options] { return run_report(*options); }};
}

}  // namespace amaxscope::launch
