// Page-locked host memory for tensors of one CUDA device.
#pragma once

#include <memory>

#include "core/host_staging.hpp"

namespace amaxscope {

/// Memory is kept for reuse until this and all copies are gone. Throws CudaError, then and later.
std::shared_ptr<HostStaging> make_cuda_host_staging(int device);

}  // namespace amaxscope
