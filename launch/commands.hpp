// The commands of `amaxscope`: each adds its options to the command line and can then be run.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <vector>

#include "launch/exit_status.hpp"

namespace amaxscope::launch {

class Job;

struct Command {
  CLI::App* app = nullptr;
  /// What the command does, on one process. Throws Error. Empty for a command that needs a job.
  std::function<ExitStatus()> run_alone = {};
  /// What the command does on each rank of a job. Agrees on failures through the job.
  std::function<ExitStatus(Job&)> run_in_job = {};
  /// Of a command that has both: whether its options ask for run_alone.
  std::function<bool()> asks_alone = {};
  /// Runs in a job that is not what its launcher announced (a singleton), to say so; others are refused then.
  bool examines_the_job = false;

  [[nodiscard]] bool needs_job() const { return run_in_job && !(asks_alone && asks_alone()); }
};

Command add_train(CLI::App& app);
Command add_check(CLI::App& app);
Command add_check_records(CLI::App& app);
Command add_explain(CLI::App& app);
Command add_analyze(CLI::App& app);
Command add_quantize(CLI::App& app);
Command add_replay(CLI::App& app);
Command add_doctor(CLI::App& app);
Command add_presets(CLI::App& app);
Command add_report(CLI::App& app);
Command add_sense(CLI::App& app);
Command add_diff(CLI::App& app);
Command add_watch(CLI::App& app);
Command add_blame(CLI::App& app);

}  // namespace amaxscope::launch
