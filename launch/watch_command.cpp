// `amaxscope watch`: one screen that follows a running job by what it writes. Only reads.
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "core/error.hpp"
#include "launch/commands.hpp"
#include "launch/terminal.hpp"
#include "launch/watch_text.hpp"

namespace amaxscope::launch {

namespace {

struct WatchOptions {
  std::string directory;
  double interval = 2;
  bool once = false;
};

Screen screen_now() {
  Screen screen;
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 && size.ws_row > 5) {
    screen.columns = size.ws_col;
    screen.rows = size.ws_row;
  } else {
    screen.columns = 110;
    screen.rows = 40;
  }
  const char* no_color = std::getenv("NO_COLOR");
  screen.color = is_terminal(stdout) && (no_color == nullptr || *no_color == 0);
  return screen;
}

ExitStatus status_of(const RunView& view) {
  if (view.verdict.outcome == report::Outcome::kNoData) return kBadInput;
  const bool well =
      view.verdict.outcome == report::Outcome::kHealthy && !view.dead && ranks_in_trouble(view).empty();
  return well ? kDone : kAnswerIsNo;
}

/// A log that people keep: lines when something is new, not a screen again and again.
class PlainOutput {
 public:
  void show(const RunView& view) {
    for (const Alarm& alarm : view.alarms) say(stdout, fmt::format("alarm {}\n", alarm_line(alarm)));
    const std::string line = watch_line(view);
    if (line != last_) say(stdout, line + "\n");
    last_ = line;
    std::fflush(stdout);
  }

 private:
  std::string last_;
};

ExitStatus run_watch(const WatchOptions& options) {
  AMAXSCOPE_CHECK(options.interval >= 0.1, ErrorCode::kUsage, "--interval {}: at least 0.1 seconds",
                  options.interval);
  RunFollower follower(options.directory);
  PlainOutput plain;
  const bool redraws = is_terminal(stdout) && !options.once;
  while (true) {
    const RunView view = follower.look(std::chrono::system_clock::now());
    if (options.once) {
      fmt::print("{}", watch_screen(view, options.directory, screen_now()));
    } else if (redraws) {
      fmt::print("\x1b[H\x1b[J{}", watch_screen(view, options.directory, screen_now()));
      std::fflush(stdout);
    } else {
      plain.show(view);
    }
    if (options.once) return status_of(view);
    if (view.closed || view.dead) {
      say(stdout,
          fmt::format("{}; `amaxscope report {} --text` says more\n",
                      view.closed ? "the run was closed" : "the job is gone, and the run was not closed",
                      options.directory));
      return status_of(view);
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(options.interval));
  }
}

}  // namespace

Command add_watch(CLI::App& app) {
  CLI::App* subcommand =
      app.add_subcommand("watch", "follows a running job: progress, ranks, alarms, verdict so far");
  auto options = std::make_shared<WatchOptions>();
  subcommand->add_option("DIR", options->directory, "the log directory of a run (--log-dir)")
      ->required()
      ->type_name("");
  subcommand->add_option("--interval", options->interval, "between two looks (default 2)")
      ->type_name("SECONDS");
  subcommand->add_flag("--once", options->once, "one look, printed as a screen, and the end");
  subcommand->footer(
      "A screen that is drawn again on a terminal (NO_COLOR: without color); elsewhere a line whenever "
      "something is "
      "new.\nIt reads run.json, metrics/ and flight/ and writes nothing. Ends when the run is closed or its "
      "processes "
      "are gone;\nCtrl-C ends it at any time and does not touch the job.\n"
      "Exit 0: nothing found so far. 1: something was found, ranks are in trouble, or the job died. 2: no "
      "data, or "
      "DIR is\nno directory.");
  return {.app = subcommand, .run_alone = [options] { return run_watch(*options); }};
}

}  // namespace amaxscope::launch
