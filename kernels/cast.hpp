// High precision to FP8 codes under one scale per tensor, and conversions between high-precision types.
#pragma once

#include "core/tensor.hpp"

namespace amaxscope {

/// out[i] = fp8(RN(x[i] * scale)), saturating, round to nearest, ties to even; NaN becomes 0x7F.
/// x: f32, f16, bf16, contiguous. scale: f32 [1]. out: e4m3 or e5m2, same shape. All on one device.
/// Asynchronous on x's stream on a device. Throws Error(kTensor).
void cast_to_fp8(const TensorView& x, const TensorView& scale, const MutableTensorView& out);

/// cast_to_fp8, and the same codes transposed into out_transposed [K, M] in the same pass over x [M, K].
void cast_transpose_to_fp8(const TensorView& x, const TensorView& scale, const MutableTensorView& out,
                           const MutableTensorView& out_transposed);

/// out [K, M] = transpose of x [M, K]; any one, two, four or eight byte element type. Asynchronous on a
/// device.
void transpose(const TensorView& x, const MutableTensorView& out);

/// Between f64, f32, f16 and bf16, rounded once, to nearest, ties to even; same shape. NaN stays NaN, in f16
/// and bf16 the quiet 0x7FFF when it comes from a wider type; the same type is copied bit for bit.
/// Asynchronous on x's stream on a device, which has no f64.
void convert(const TensorView& x, const MutableTensorView& out);

}  // namespace amaxscope
