#include "launch/doctor_ranks.hpp"

#include <unistd.h>

#include <cstdlib>

#include "collectives/exchange.hpp"
#include "core/version.hpp"
#include "launch/doctor_clock.hpp"
#include "launch/machine.hpp"
#include "runtime/config/config.hpp"

namespace amaxscope::launch {

namespace {

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "?";
}

/// Of all variables of Open MPI those that a user sets; mpirun adds many of its own, another for each rank.
std::vector<std::string> settings() {
  std::vector<std::string> variables =
      environment_with({"AMAXSCOPE", "NCCL_", "OMP_", "OPENBLAS_", "CUDA_LAUNCH_BLOCKING", "UCX_",
                        "OMPI_MCA_btl", "OMPI_MCA_coll", "OMPI_MCA_mpi_yield_when_idle", "OMPI_MCA_mtl",
                        "OMPI_MCA_oob", "OMPI_MCA_osc", "OMPI_MCA_pml"});
  // How progress is shown is the leader's affair.
  std::erase_if(variables,
                [](const std::string& variable) { return variable.starts_with("AMAXSCOPE_TERMINAL="); });
  return variables;
}

std::map<std::string, std::string> versions(const DriverProbe& driver) {
  std::map<std::string, std::string> found = {{"amaxscope", kVersion},
                                              {"MPI", Job::mpi_version()},
                                              {"BLAS", blas_build()},
                                              {"instruction sets", simd_level()}};
  if (driver.driver.found) found["CUDA driver"] = driver.driver.detail;
  if (const LibraryProbe nccl = nccl_library(); nccl.found) found["NCCL"] = nccl.detail;
  return found;
}

RankReport own_report(const Job::Machine& machine, const std::string& config) {
  const DriverProbe driver = cuda_driver();
  const Device device = device_of_rank(machine.rank, driver.devices.size());
  RankReport report;
  report.host = host_name();
  report.local_rank = machine.rank;
  report.local_ranks = machine.ranks;
  report.device = to_string(device);
  if (device.kind != DeviceKind::kCpu) {
    report.device_uuid = driver.devices[static_cast<std::size_t>(device.index)].uuid;
  }
  report.cores = usable_cores();
  report.core_list = core_list();
  report.versions = versions(driver);
  report.limits = resource_limits();
  if (const auto memory = shared_memory()) {
    report.shared_memory_bytes = memory->size_bytes;
    report.shared_memory_free_bytes = memory->free_bytes;
  }
  report.environment = settings();
  report.warning = local_rank_disagreement([](const char* name) -> const char* { return std::getenv(name); },
                                           machine.rank);
  if (!config.empty()) report.config_digest = text_digest(read_config_file(config));
  return report;
}

}  // namespace

std::vector<RankReport> reports_of_ranks(Job& job, const std::string& config) {
  const Job::Machine machine = job.machine();
  RankReport own;
  job.agree([&] { own = own_report(machine, config); });
  own.clock_offset_seconds = clock_offset_seconds(job.world());
  std::vector<RankReport> reports;
  for (const std::string& text : all_gather_text(
           job.world(), to_text(own), {.traffic = Traffic::kTrainer, .what = "reports of the ranks"})) {
    reports.push_back(parse_rank_report(text));
  }
  return reports;
}

}  // namespace amaxscope::launch
