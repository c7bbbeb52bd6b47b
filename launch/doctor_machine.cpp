#include "launch/doctor_machine.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>

#include "launch/machine.hpp"

namespace amaxscope::launch {

namespace {

constexpr std::uint64_t kMebibyte = 1U << 20U;
// NCCL's and Open MPI's buffers for the ranks of one machine outgrow the 64 MiB that containers get by
// default.
constexpr std::uint64_t kEnoughSharedMemory = 1024 * kMebibyte;

std::string found_or_not(const DriverProbe& probe, bool has_devices) {
  if (!probe.found) return "not found: " + probe.detail;
  return has_devices ? fmt::format("{}, {} devices", probe.detail, probe.devices) : probe.detail;
}

void describe_shared_memory(MachineReport& report) {
  const auto memory = shared_memory();
  if (!memory) {
    report.rows.push_back({"/dev/shm", "not there"});
    report.notes.emplace_back("/dev/shm is not there: the ranks of this machine cannot share memory");
    return;
  }
  report.rows.push_back({"/dev/shm", fmt::format("{} MiB, {} MiB free", memory->size_bytes / kMebibyte,
                                                 memory->free_bytes / kMebibyte)});
  if (memory->size_bytes < kEnoughSharedMemory) {
    report.notes.push_back(
        fmt::format("/dev/shm has {} MiB, less than 1 GiB: many ranks or NCCL may run out of it; start "
                    "the container with --shm-size=1g",
                    memory->size_bytes / kMebibyte));
  }
}

void describe_root(MachineReport& report) {
  if (getuid() != 0) return;
  const bool allowed = std::getenv("OMPI_ALLOW_RUN_AS_ROOT") != nullptr &&
                       std::getenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM") != nullptr;
  report.rows.push_back({"user", allowed ? "root, allowed for mpirun" : "root"});
  if (!allowed) {
    report.notes.emplace_back(
        "root: mpirun refuses unless OMPI_ALLOW_RUN_AS_ROOT=1 and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
        "are set; launch/mpirun_local sets both");
  }
}

}  // namespace

MachineReport describe_machine(const std::string& job) {
  MachineReport report;
  report.rows = {{"amaxscope", AMAXSCOPE_VERSION}, {"MPI", job}};
  const std::string mpirun = find_program("mpirun");
  report.rows.push_back({"mpirun", mpirun.empty() ? "not on PATH" : mpirun});
  if (mpirun.empty()) report.notes.emplace_back("mpirun is not on PATH: launch/install_deps installs it");
  report.rows.push_back({"CPU", fmt::format("{} usable cores; {}", usable_cores(), simd_level())});
  report.rows.push_back({"BLAS", blas_description()});
  report.rows.push_back({"CUDA driver", found_or_not(cuda_driver(), true)});
  report.rows.push_back({"NCCL", found_or_not(nccl_library(), false)});
  report.rows.push_back({"backends", "cpu (the CUDA backend is not built yet)"});
  describe_shared_memory(report);
  describe_root(report);
  return report;
}

}  // namespace amaxscope::launch
