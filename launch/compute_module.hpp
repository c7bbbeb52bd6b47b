// The library for CUDA devices, libamaxscope_train_cuda.so, which the program loads when it is asked to
// compute on one: so the program itself starts, and runs on the CPU, on machines that have no CUDA.
#pragma once

#include <filesystem>
#include <vector>

#include "launch/compute_device.hpp"

namespace amaxscope::launch {

/// Where it is looked for: beside the program, and in ../lib/amaxscope.
std::vector<std::filesystem::path> compute_module_places();

/// Loads it, for good. Throws Error(kUsage) that says where it was looked for or what the loader lacks, and
/// what to do.
const ComputeModule& load_compute_module();

}  // namespace amaxscope::launch
