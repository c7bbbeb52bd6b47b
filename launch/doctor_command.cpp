// `amaxscope doctor`: its options, and what is looked at.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>

#include "core/error.hpp"
#include "launch/commands.hpp"
#include "launch/device_choice.hpp"
#include "launch/doctor_findings.hpp"
#include "launch/doctor_machine.hpp"
#include "launch/doctor_ranks.hpp"
#include "launch/flight_doctor.hpp"
#include "launch/job.hpp"
#include "launch/launcher.hpp"

namespace amaxscope::launch {

namespace {

struct DoctorOptions {
  std::string config;
  bool share_devices = false;
  bool json = false;
  FlightDoctorOptions flight;
};

std::string describe_job(const std::vector<RankReport>& reports) {
  std::set<std::string> hosts;
  for (const RankReport& report : reports) hosts.insert(report.host);
  return fmt::format("{}; {} rank{} on {} host{}", Job::mpi_version(), reports.size(),
                     reports.size() == 1 ? "" : "s", hosts.size(), hosts.size() == 1 ? "" : "s");
}

/// The message of what `check` throws; empty when it passes.
template <class Check>
std::string complaint(const Check& check) {
  try {
    check();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

std::string singleton(int ranks) {
  const auto hint = launcher_hint([](const char* name) -> const char* { return std::getenv(name); });
  return complaint([&] { refuse_singleton(hint, ranks, "train ..."); });
}

std::string shared_devices(const std::vector<RankReport>& reports, DeviceSharing sharing) {
  std::vector<DeviceUse> uses;
  for (const RankReport& report : reports) uses.push_back({report.host, report.device, report.device_uuid});
  return complaint([&] { require_own_devices(uses, sharing); });
}

Findings examine(const std::vector<RankReport>& reports, const DoctorOptions& options) {
  MachineReport machine = describe_machine(describe_job(reports));
  Findings findings{machine.rows, reports, notes_on(reports), {}};
  findings.notes.insert(findings.notes.begin(), machine.notes.begin(), machine.notes.end());
  if (const std::string text = singleton(static_cast<int>(reports.size())); !text.empty()) {
    findings.problems.push_back(text);
  }
  const DeviceSharing sharing = options.share_devices ? DeviceSharing::kAllowed : DeviceSharing::kRefused;
  // Not in the way of a job as long as jobs run on the CPU.
  if (const std::string text = shared_devices(reports, sharing); !text.empty()) {
    findings.notes.push_back("no job on devices could start like this: " + text);
  }
  return findings;
}

ExitStatus doctor(Job& job, const DoctorOptions& options) {
  const std::vector<RankReport> reports = reports_of_ranks(job, options.config);
  ExitStatus status = kDone;
  job.agree([&] {
    if (!job.is_leader()) return;
    const Findings findings = examine(reports, options);
    std::fputs((options.json ? as_json(findings) : as_text(findings)).c_str(), stdout);
    AMAXSCOPE_CHECK(std::fflush(stdout) == 0, ErrorCode::kIo, "standard output cannot be written");
    status = all_well(findings) ? kDone : kAnswerIsNo;
  });
  return job.leaders(status);
}

}  // namespace

Command add_doctor(CLI::App& app) {
  CLI::App* subcommand = app.add_subcommand(
      "doctor", "what this machine has and lacks; under mpirun also where each rank runs and what differs");
  auto options = std::make_shared<DoctorOptions>();
  subcommand->add_option("--config", options->config, "compare this file over the ranks")->type_name("YAML");
  subcommand->add_flag("--share-devices", options->share_devices, "several ranks may use one device");
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
  subcommand->add_flag("--json", options->json, "one JSON object on standard output");
  subcommand->footer(
      "Exit status 1: something is in the way of a job, or the ranks differ in what they compute with.");
  return {.app = subcommand,
          .run_alone =
              [options] {
                FlightDoctorOptions flight_options = options->flight;
                flight_options.json = options->json;
                return flight_doctor(flight_options);
              },
          .run_in_job = [options](Job& job) { return doctor(job, *options); },
          .asks_alone = [flight] { return flight->count() > 0; },
          .examines_the_job = true};
}

}  // namespace amaxscope::launch
