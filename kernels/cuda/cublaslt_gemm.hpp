// Matrix products by cuBLASLt. A target of its own (amaxscope::kernels_cublaslt), built where its header is;
// programs add the library, or the tests' imitation of it.
#pragma once

#include <memory>

#include "kernels/cuda/device_gemm.hpp"

namespace amaxscope {

/// For tensors of one CUDA device, whose backend it is part of (CudaBackendOptions::gemm). Multiplied as they
/// are: f32, f16 and bf16 of one type on every device; per-tensor FP8 codes from compute capability 8.9 on;
/// FP8 blocks on 9.0; MXFP8 and NVFP4 from 10.0 on, with cuBLASLt 12.9 or newer and in sizes and layouts that
/// it has (cublaslt_rules.hpp). Accumulates in f32, f32 products are not rounded to TF32. Which algorithm is
/// used is up to cuBLASLt: results are within rounding of those of the CPU, not bit for bit. Throws
/// Error(kInternal) that says what cuBLASLt said, CudaError.
std::shared_ptr<DeviceGemm> make_cublaslt_gemm(int device);

}  // namespace amaxscope
