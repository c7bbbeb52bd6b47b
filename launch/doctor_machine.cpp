#include "launch/doctor_machine.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "core/version.hpp"
#include "launch/compute_module.hpp"
#include "launch/machine.hpp"

namespace amaxscope::launch {

namespace {

constexpr std::uint64_t kMebibyte = 1U << 20U;

std::string describe_driver(const DriverProbe& probe) {
  if (!probe.driver.found) return "not found: " + probe.driver.detail;
  std::vector<std::string> names;
  for (const VisibleDevice& device : probe.devices) names.push_back(device.name);
  return fmt::format("{}, {} device{}{}{}", probe.driver.detail, names.size(), names.size() == 1 ? "" : "s",
                     names.empty() ? "" : ": ", fmt::join(names, ", "));
}

std::string describe_shared_memory() {
  const auto memory = shared_memory();
  if (!memory) return "not there";
  return fmt::format("{} MiB, {} MiB free", memory->size_bytes / kMebibyte, memory->free_bytes / kMebibyte);
}

void describe_root(MachineReport& report) {
  if (getuid() != 0) return;
  const bool allowed = std::getenv("OMPI_ALLOW_RUN_AS_ROOT") != nullptr &&
                       std::getenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM") != nullptr;
  report.rows.push_back({"user", allowed ? "root, allowed for mpirun" : "root"});
  if (!allowed) {
    report.notes.emplace_back(
        "root: mpirun refuses unless OMPI_ALLOW_RUN_AS_ROOT=1 and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
        "are set; launch/mpirun and launch/mpirun_local set both");
  }
}

// What `train --device` may be. Whether the library for CUDA can be loaded is found out by who asks for it.
std::string train_devices() {
  for (const std::filesystem::path& place : compute_module_places()) {
    std::error_code ignored;
    if (std::filesystem::exists(place, ignored)) return fmt::format("cpu, cuda ({})", place.string());
  }
  return "cpu (no library for CUDA is beside the program)";
}

}  // namespace

MachineReport describe_machine(const std::string& job) {
  MachineReport report;
  report.rows = {{"amaxscope", kVersion}, {"MPI", job}};
  const std::string mpirun = find_program("mpirun");
  report.rows.push_back({"mpirun", mpirun.empty() ? "not on PATH" : mpirun});
  if (mpirun.empty()) report.notes.emplace_back("mpirun is not on PATH: launch/install_deps installs it");
  report.rows.push_back({"CPU", fmt::format("{} usable cores; {}", usable_cores(), simd_level())});
  report.rows.push_back({"BLAS", fmt::format("{}, {} threads by default", blas_build(), blas_threads())});
  report.rows.push_back({"CUDA driver", describe_driver(cuda_driver())});
  const LibraryProbe nccl = nccl_library();
  report.rows.push_back({"NCCL", nccl.found ? nccl.detail : "not found: " + nccl.detail});
  report.rows.push_back({"train on", train_devices()});
  report.rows.push_back({"/dev/shm", describe_shared_memory()});
  describe_root(report);
  return report;
}

}  // namespace amaxscope::launch
