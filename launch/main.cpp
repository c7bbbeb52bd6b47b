// The `amaxscope` program: finds the command, runs it alone or as the ranks of a job, turns failures into one
// line and a status.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <locale>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/version.hpp"
#include "launch/commands.hpp"
#include "launch/failure.hpp"
#include "launch/job.hpp"
#include "launch/launcher.hpp"
#include "runtime/config/diagnostics.hpp"

namespace amaxscope::launch {

namespace {

struct CommandLine {
  CLI::App app{
      "amaxscope: which GEMM, which tensor, which rank, which iteration? Precision debugging for FP8 "
      "training.",
      "amaxscope"};
  std::vector<Command> commands;

  CommandLine() {
    app.set_version_flag("--version", std::string("amaxscope ") + kVersion);
    app.require_subcommand(1);
    app.get_formatter()->column_width(28);
    commands = {add_train(app),  add_check(app),  add_explain(app),       add_analyze(app), add_quantize(app),
                add_replay(app), add_doctor(app), add_presets(app),       add_report(app),  add_sense(app),
                add_diff(app),   add_watch(app),  add_check_records(app), add_blame(app)};
  }

  [[nodiscard]] const Command* chosen() const {
    for (const Command& command : commands) {
      if (command.app->parsed()) return &command;
    }
    return nullptr;
  }
};

/// What the command line asks for: a text to print (help, version), a refusal, or a command.
struct Request {
  const Command* command = nullptr;
  std::string text;
  std::string refusal;
};

/// Empty when nothing is left over on the command line.
std::string misspelt(const CommandLine& line) {
  const Command* command = line.chosen();
  const CLI::App* app = command != nullptr ? command->app : &line.app;
  const std::vector<std::string> extras =
      command != nullptr ? command->app->remaining() : line.app.remaining();
  if (extras.empty()) return {};
  std::vector<std::string> known;
  if (command == nullptr) {
    for (const Command& each : line.commands) known.push_back(each.app->get_name());
    return fmt::format("unknown command `{}`{}", extras[0], suggestion(extras[0], known));
  }
  const std::string word = extras[0].substr(0, extras[0].find('='));
  if (!word.starts_with("-")) return fmt::format("unexpected argument `{}` of {}", word, app->get_name());
  for (const CLI::Option* option : app->get_options()) {
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  }
  return fmt::format("unknown option {} of {}{}", word, app->get_name(), suggestion(word, known));
}

Request parse(CommandLine& line, int argc, char** argv) {
  Request request;
  try {
    line.app.parse(argc, argv);
    request.command = line.chosen();
  } catch (const CLI::CallForHelp&) {
    const Command* command = line.chosen();
    request.text = command != nullptr ? command->app->help("amaxscope") : line.app.help();
  } catch (const CLI::CallForVersion& version) {
    request.text = std::string(version.what()) + "\n";
  } catch (const CLI::ParseError& error) {
    const Command* command = line.chosen();
    const bool left_over = command == nullptr || dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
    if (left_over) request.refusal = misspelt(line);
    if (request.refusal.empty()) {
      request.refusal = fmt::format("{}; see `amaxscope {}--help`", error.what(),
                                    command != nullptr ? command->app->get_name() + " " : "");
    }
  }
  return request;
}

ExitStatus perform_alone(const Request& request) {
  if (!request.refusal.empty()) throw Error(ErrorCode::kUsage, request.refusal);
  std::fputs(request.text.c_str(), stdout);
  const ExitStatus status = request.command != nullptr ? request.command->run_alone() : kDone;
  AMAXSCOPE_CHECK(std::fflush(stdout) == 0 && std::ferror(stdout) == 0, ErrorCode::kIo,
                  "standard output cannot be written");
  return status;
}

ExitStatus perform_in_job(const Request& request, Job& job, const std::optional<LauncherHint>& hint) {
  // Refusals first: a rank with a wrong option must not look like one with another command.
  job.agree([&] {
    if (!request.refusal.empty()) throw Error(ErrorCode::kUsage, request.refusal);
  });
  const std::string name = request.command != nullptr ? request.command->app->get_name() : "--help";
  job.agree_on("the command", name);
  if (request.command != nullptr && request.command->needs_job()) {
    job.agree([&] {
      if (!request.command->examines_the_job) refuse_singleton(hint, job.world().size(), name);
    });
    return request.command->run_in_job(job);
  }
  // A command that needs no job, started under a launcher all the same: once is enough.
  ExitStatus status = kDone;
  Failure failure;
  if (job.is_leader()) {
    try {
      status = perform_alone(request);
    } catch (...) {
      failure = describe(std::current_exception());
      std::fputs(error_lines(failure.message).c_str(), stderr);
      status = failure.status;
    }
  }
  return job.leaders(status);
}

int run(int argc, char** argv) {
  CommandLine line;
  const Request request = parse(line, argc, argv);
  const auto hint = launcher_hint([](const char* name) -> const char* { return std::getenv(name); });
  const bool needs_job = request.command != nullptr && request.command->needs_job();
  if (!needs_job && !hint) return perform_alone(request);
  Job job(&argc, &argv);
  try {
    return perform_in_job(request, job, hint);
  } catch (const JobFailed& failed) {
    return failed.status;
  }
}

}  // namespace

}  // namespace amaxscope::launch

int main(int argc, char** argv) {
  using namespace amaxscope::launch;
  // Options are numbers as programs write them, whatever a library that came with this process has chosen.
  std::locale::global(std::locale::classic());
  try {
    return run(argc, argv);
  } catch (...) {
    const Failure failure = describe(std::current_exception());
    std::fflush(stdout);
    std::fputs(error_lines(failure.message).c_str(), stderr);
    return failure.status;
  }
}
