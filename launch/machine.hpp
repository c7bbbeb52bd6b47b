// What this machine offers to amaxscope. Reads, never changes; each function looks anew.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launch/device_choice.hpp"

namespace amaxscope::launch {

/// The instruction sets of this CPU that matter to the kernels, weakest first: "SSE4.2, AVX2, F16C".
std::string simd_level();

/// "OpenBLAS 0.3.21 ...; core Haswell": what decides the bits of a product.
std::string blas_build();
int blas_threads();

/// Cores this process may use.
int usable_cores();
/// Which cores these are: "0-3, 8".
std::string core_list();

/// Soft limits that jobs run into: "locked memory" (RDMA, NCCL) and "open files" (connections between ranks).
/// "unlimited", "8 MiB", "1024".
std::map<std::string, std::string> resource_limits();

struct SharedMemory {
  std::uint64_t size_bytes = 0;
  std::uint64_t free_bytes = 0;
};
/// /dev/shm, through which the ranks of a machine (and NCCL) talk; none when it is not there.
std::optional<SharedMemory> shared_memory();

struct LibraryProbe {
  bool found = false;
  std::string detail;  ///< version, or why there is none
};
struct DriverProbe {
  LibraryProbe driver;
  std::vector<VisibleDevice> devices;  ///< those visible to this process, by ordinal
};
/// The CUDA driver and NCCL, looked for the way a program would load them.
DriverProbe cuda_driver();
LibraryProbe nccl_library();

/// Where a program is on PATH; empty when it is not.
std::string find_program(const std::string& name);

/// Variables of this process whose name begins with one of the prefixes, sorted, "NAME=value".
std::vector<std::string> environment_with(const std::vector<std::string>& prefixes);

}  // namespace amaxscope::launch
