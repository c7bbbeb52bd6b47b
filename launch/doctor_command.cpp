#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <set>
#include <string>

#include "collectives/exchange.hpp"
#include "core/error.hpp"
#include "launch/commands.hpp"
#include "launch/failure.hpp"
#include "launch/job.hpp"
#include "launch/launcher.hpp"
#include "launch/machine.hpp"
#include "launch/rank_report.hpp"
#include "launch/text.hpp"
#include "runtime/config/config.hpp"

namespace amaxscope::launch {

namespace {

constexpr std::uint64_t kMebibyte = 1U << 20U;
// NCCL's and Open MPI's buffers for the ranks of one machine outgrow the 64 MiB that containers get by
// default.
constexpr std::uint64_t kEnoughSharedMemory = 1024 * kMebibyte;

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "?";
}

RankReport own_report(Job& job, const std::string& config) {
  RankReport report;
  report.host = host_name();
  report.local_rank = job.machine().rank;
  report.cores = usable_cores();
  report.environment = environment_with({"AMAXSCOPE", "NCCL_", "OMP_", "OPENBLAS_"});
  if (!config.empty()) report.config_digest = text_digest(read_config_file(config));
  return report;
}

std::string found_or_not(const DriverProbe& probe, bool has_devices) {
  if (!probe.found) return "not found: " + probe.detail;
  return has_devices ? fmt::format("{}, {} devices", probe.detail, probe.devices) : probe.detail;
}

void print_machine(Job& job, const std::vector<RankReport>& reports, std::vector<std::string>& advice) {
  std::set<std::string> hosts;
  for (const RankReport& report : reports) hosts.insert(report.host);
  std::vector<std::vector<std::string>> rows = {{"amaxscope", AMAXSCOPE_VERSION}};
  rows.push_back(
      {"MPI", fmt::format("{}; {} rank{} on {} host{}", job.mpi_version(), reports.size(),
                          reports.size() == 1 ? "" : "s", hosts.size(), hosts.size() == 1 ? "" : "s")});
  const std::string mpirun = find_program("mpirun");
  rows.push_back({"mpirun", mpirun.empty() ? "not on PATH" : mpirun});
  if (mpirun.empty()) advice.emplace_back("mpirun is not on PATH: launch/install_deps installs it");
  rows.push_back({"CPU", fmt::format("{} usable cores; {}", usable_cores(), simd_level())});
  rows.push_back({"BLAS", blas_description()});
  rows.push_back({"CUDA driver", found_or_not(cuda_driver(), true)});
  rows.push_back({"NCCL", found_or_not(nccl_library(), false)});
  rows.push_back({"backends", "cpu (the CUDA backend is not built yet)"});
  if (const auto memory = shared_memory()) {
    rows.push_back({"/dev/shm", fmt::format("{} MiB, {} MiB free", memory->size_bytes / kMebibyte,
                                            memory->free_bytes / kMebibyte)});
    if (memory->size_bytes < kEnoughSharedMemory) {
      advice.push_back(
          fmt::format("/dev/shm has {} MiB, less than 1 GiB: many ranks or NCCL may run out of it; start "
                      "the container with --shm-size=1g",
                      memory->size_bytes / kMebibyte));
    }
  } else {
    rows.push_back({"/dev/shm", "not there"});
    advice.emplace_back("/dev/shm is not there: the ranks of this machine cannot share memory");
  }
  if (getuid() == 0) {
    const bool allowed = std::getenv("OMPI_ALLOW_RUN_AS_ROOT") != nullptr &&
                         std::getenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM") != nullptr;
    rows.push_back({"user", allowed ? "root, allowed for mpirun" : "root"});
    if (!allowed) {
      advice.emplace_back(
          "root: mpirun refuses unless OMPI_ALLOW_RUN_AS_ROOT=1 and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
          "are set; launch/mpirun_local sets both");
    }
  }
  fmt::print("{}\n", table(rows));
}

ExitStatus doctor(Job& job, const std::string& config) {
  std::string report;
  job.agree([&] { report = to_text(own_report(job, config)); });
  const std::vector<std::string> texts =
      all_gather_text(job.world(), report, {.traffic = Traffic::kTrainer, .what = "reports of the ranks"});
  ExitStatus status = kDone;
  if (job.is_leader()) {
    std::vector<RankReport> reports;
    for (const std::string& text : texts) reports.push_back(parse_rank_report(text));
    std::vector<std::string> advice;
    print_machine(job, reports, advice);
    fmt::print("{}", table(rank_rows(reports)));

    std::vector<std::string> problems = differences(reports);
    const auto hint = launcher_hint([](const char* name) -> const char* { return std::getenv(name); });
    try {
      refuse_singleton(hint, job.world().size(), "train ...");
    } catch (const Error& error) {
      problems.emplace_back(error.what());
    }
    for (const std::string& line : advice) fmt::print("\nnote: {}", line);
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
  auto config = std::make_shared<std::string>();
  subcommand->add_option("--config", *config, "compare this file over the ranks")->type_name("YAML");
  return {.app = subcommand, .run_in_job = [config](Job& job) { return doctor(job, *config); }};
}

}  // namespace amaxscope::launch
