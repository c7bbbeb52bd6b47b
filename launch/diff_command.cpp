// `amaxscope diff`: where two runs part.
#include <fmt/format.h>

#include <optional>

#include "launch/commands.hpp"
#include "launch/terminal.hpp"
#include "report/diff_text.hpp"

namespace amaxscope::launch {

namespace {

struct DiffArguments {
  std::string a;
  std::string b;
  std::vector<std::string> perturbed;
  std::optional<std::int64_t> until;
  bool json = false;
};

ExitStatus run_diff(const DiffArguments& options) {
  const report::Diff diff = report::compare_runs(
      options.a, options.b,
      {.perturbed = {options.perturbed.begin(), options.perturbed.end()}, .until = options.until});
  say(stdout, options.json ? report::as_json(diff) + "\n" : report::as_text(diff, options.a, options.b));
  if (diff.nothing_compared()) return kBadInput;
  return diff.differs() ? kAnswerIsNo : kDone;
}

}  // namespace

Command add_diff(CLI::App& app) {
  CLI::App* subcommand =
      app.add_subcommand("diff", "where two runs part: iteration, layer, tensor, statistic");
  auto options = std::make_shared<DiffArguments>();
  subcommand->add_option("A", options->a, "the log directory of a run (--log-dir)")
      ->required()
      ->type_name("");
  subcommand->add_option("B", options->b, "that of the run to compare with it")->required()->type_name("");
  subcommand
      ->add_option(
          "--perturbed", options->perturbed,
          "a run as A with `train --perturb SEED`: tolerances come from how far it is from A; may be "
          "repeated (default: a table made with the trainer)")
      ->type_name("DIR")
      ->expected(1)
      ->take_all();
  subcommand->add_option("--until", options->until, "the last iteration to compare")->type_name("N");
  subcommand->add_flag("--json", options->json, "one JSON object with a version, for programs");
  subcommand->footer(
      "Runs may have other tp, pp and dp. Tensors are matched by name, phase and iteration; a difference "
      "counts "
      "when it is\nlarger than rounding explains (docs/report.md).\n"
      "Exit 0: the same. 1: they differ. 2: nothing to compare, or a directory that is none.");
  return {.app = subcommand, .run_alone = [options] { return run_diff(*options); }};
}

}  // namespace amaxscope::launch
