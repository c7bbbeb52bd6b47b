#include "launch/launcher.hpp"

#include <charconv>

#include "core/error.hpp"

namespace amaxscope::launch {

namespace {

// Open MPI, Slurm, MPICH's and Intel's hydra, MVAPICH2, torchrun.
constexpr const char* kSizeVariables[] = {
    "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS",    "SLURM_NPROCS", "PMI_SIZE",
    "MV2_COMM_WORLD_SIZE",  "MPI_LOCALNRANKS", "WORLD_SIZE"};

}  // namespace

std::optional<LauncherHint> launcher_hint(const EnvironmentLookup& get_environment) {
  std::optional<LauncherHint> hint;
  for (const char* variable : kSizeVariables) {
    const char* value = get_environment(variable);
    if (value == nullptr) continue;
    const std::string_view text(value);
    int ranks = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ranks);
    if (error != std::errc() || end != text.data() + text.size() || ranks <= 1) continue;
    if (!hint || ranks > hint->ranks) hint = LauncherHint{variable, ranks};
  }
  return hint;
}

void refuse_singleton(const std::optional<LauncherHint>& hint, int mpi_size, std::string_view command) {
  AMAXSCOPE_CHECK(
      !hint || mpi_size > 1, ErrorCode::kUsage,
      "{}={} announces {} ranks, but MPI started this process alone (a singleton); start it as `mpirun "
      "-n {} amaxscope {}` with the Open MPI it was built with, or `srun --mpi=pmix -n {} ...`; unset {} "
      "for a run on one rank",
      hint->variable, hint->ranks, hint->ranks, hint->ranks, command, hint->ranks, hint->variable);
}

}  // namespace amaxscope::launch
