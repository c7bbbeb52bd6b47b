// `amaxscope doctor`: its options, and what is printed in which order.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>

#include "core/error.hpp"
#include "launch/commands.hpp"
#include "launch/doctor_machine.hpp"
#include "launch/doctor_ranks.hpp"
#include "launch/flight_doctor.hpp"
#include "launch/job.hpp"
#include "launch/launcher.hpp"
#include "launch/text.hpp"

namespace amaxscope::launch {

namespace {

struct DoctorOptions {
  std::string config;
  FlightDoctorOptions flight;
};

std::string describe_job(const std::vector<RankReport>& reports) {
  std::set<std::string> hosts;
  for (const RankReport& report : reports) hosts.insert(report.host);
  return fmt::format("{}; {} rank{} on {} host{}", Job::mpi_version(), reports.size(),
                     reports.size() == 1 ? "" : "s", hosts.size(), hosts.size() == 1 ? "" : "s");
}

std::vector<std::string> find_problems(const Job& job, const std::vector<RankReport>& reports) {
  std::vector<std::string> problems = differences(reports);
  const auto hint = launcher_hint([](const char* name) -> const char* { return std::getenv(name); });
  try {
    refuse_singleton(hint, job.world().size(), "train ...");
  } catch (const Error& error) {
    problems.emplace_back(error.what());
  }
  return problems;
}

ExitStatus doctor(Job& job, const DoctorOptions& options) {
  const std::vector<RankReport> reports = reports_of_ranks(job, options.config);
  ExitStatus status = kDone;
  if (job.is_leader()) {
    const MachineReport machine = describe_machine(describe_job(reports));
    const std::vector<std::string> problems = find_problems(job, reports);
    fmt::print("{}\n{}", table(machine.rows), table(rank_rows(reports)));
    for (const std::string& line : machine.notes) fmt::print("\nnote: {}", line);
    for (const std::string& line : problems) fmt::print("\nproblem: {}", line);
    fmt::print("\n{}\n", problems.empty() ? "nothing in the way of `amaxscope train`" : "");
    status = problems.empty() ? kDone : kAnswerIsNo;
    std::fflush(stdout);
  }
  return job.leaders(status);
}

}  // namespace

Command add_doctor(CLI::App& app) {
  CLI::App* subcommand = app.add_subcommand(
      "doctor", "what this machine has and lacks; under mpirun also where each rank runs and what differs");
  auto options = std::make_shared<DoctorOptions>();
  subcommand->add_option("--config", options->config, "compare this file over the ranks")->type_name("YAML");
  CLI::Option* flight =
      subcommand->add_option("--flight", options->flight.directory,
                             "instead: where each rank of a running, hanging or dead job is, and "
                             "where they part first, from the flight records in a log directory; "
                             "exit 1 when something is wrong. Needs no mpirun");
  flight->type_name("DIR");
  subcommand
      ->add_option("--stuck-after", options->flight.stuck_after_seconds,
                   "with --flight: seconds for which a running rank may wait or be silent")
      ->type_name("SECONDS")
      ->capture_default_str()
      ->needs(flight);
  subcommand->add_flag("--json", options->flight.json, "with --flight: one JSON object")->needs(flight);
  return {.app = subcommand,
          .run_alone = [options] { return flight_doctor(options->flight); },
          .run_in_job = [options](Job& job) { return doctor(job, *options); },
          .asks_alone = [flight] { return flight->count() > 0; }};
}

}  // namespace amaxscope::launch
