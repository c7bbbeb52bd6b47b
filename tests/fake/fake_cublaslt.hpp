// An imitation of cuBLASLt, to be linked in its place beside that of the CUDA runtime (fake_gpu.hpp), whose
// counts and faults it shares. Descriptors are checked as the manual says they must be for a device of
// compute capability 9.0; the product is that of kernels/gemm.hpp, so that it has the bits of the CPU.
#pragma once

#include <cstddef>

namespace amaxscope::fake {

/// Handles and descriptors that were made and not destroyed.
std::size_t live_cublas_objects();

}  // namespace amaxscope::fake
