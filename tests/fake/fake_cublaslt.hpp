// An imitation of cuBLASLt, to be linked in its place beside that of the CUDA runtime (fake_gpu.hpp), whose
// counts and faults it shares. Descriptors are checked as the manual says they must be for the device's
// compute capability; the product is that of kernels/gemm.hpp of the decoded codes. Scales of blocks are read
// where the manual says they lie.
#pragma once

#include <cstddef>

namespace amaxscope::fake {

/// Handles and descriptors that were made and not destroyed.
std::size_t live_cublas_objects();
/// What cublasLtGetVersion says; 130100 at the start.
void set_cublaslt_version(std::size_t version);

}  // namespace amaxscope::fake
