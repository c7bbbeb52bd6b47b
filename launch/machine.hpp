// What this machine offers to amaxscope. Reads, never changes; each function looks anew.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace amaxscope::launch {

/// The instruction sets of this CPU that matter to the kernels, weakest first: "SSE4.2, AVX2, F16C".
std::string simd_level();

/// "OpenBLAS 0.3.21 ..., core Haswell, up to 8 threads"
std::string blas_description();

/// Cores this process may use.
int usable_cores();

struct SharedMemory {
  std::uint64_t size_bytes = 0;
  std::uint64_t free_bytes = 0;
};
/// /dev/shm, through which the ranks of a machine (and NCCL) talk; none when it is not there.
std::optional<SharedMemory> shared_memory();

struct DriverProbe {
  bool found = false;
  int devices = 0;
  std::string detail;  ///< version, or why there is none
};
/// The CUDA driver and NCCL, looked for the way a program would load them.
DriverProbe cuda_driver();
DriverProbe nccl_library();

/// Where a program is on PATH; empty when it is not.
std::string find_program(const std::string& name);

/// Variables of this process whose name begins with one of the prefixes, sorted, "NAME=value".
std::vector<std::string> environment_with(const std::vector<std::string>& prefixes);

}  // namespace amaxscope::launch
