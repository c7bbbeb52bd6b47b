// What the environment says about how this process was started. Only a cross-check: the truth is MPI's.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace amaxscope::launch {

/// getenv, or a table in tests.
using EnvironmentLookup = std::function<const char*(const char*)>;

struct LauncherHint {
  std::string variable;  ///< "SLURM_NTASKS"
  int ranks = 1;
};

/// The launcher that announces the most ranks; none when no launcher announces more than one.
std::optional<LauncherHint> launcher_hint(const EnvironmentLookup& get_environment);

/// Throws Error(kUsage) with the launch line to use when MPI sees one rank (a "singleton") and the launcher
/// announced more: the program and the launcher use different MPIs, or the launcher is none.
void refuse_singleton(const std::optional<LauncherHint>& hint, int mpi_size, std::string_view command);

}  // namespace amaxscope::launch
