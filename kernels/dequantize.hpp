// FP8 and FP4 codes back to high precision.
#pragma once

#include "core/tensor.hpp"
#include "kernels/block_scaled_view.hpp"

namespace amaxscope {

/// out[i] = RN_out(fp32(codes[i]) * scale_inv). codes: e4m3 or e5m2. scale_inv: f32 [1].
/// out: f32, f16 or bf16, same shape. Asynchronous on the codes' stream on a device. Throws Error(kTensor).
void dequantize_fp8(const TensorView& codes, const TensorView& scale_inv, const MutableTensorView& out);

/// out = the matrix that block-scaled codes stand for, in its logical shape: RN_out(RN(code * scale)).
/// Rotated codes are turned back in fp32 before the last rounding. out: f32, f16 or bf16 with codes.rows() x
/// cols() elements. Asynchronous on the codes' stream on a device. Throws Error(kTensor).
void dequantize_blocks(const BlockScaledView& codes, const MutableTensorView& out);

}  // namespace amaxscope
