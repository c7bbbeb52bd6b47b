// Quantizing and dequantizing on a device. The same results as the functions of these names in kernels/, bit
// for bit (but for the bits of an fp32 NaN), with what those take as numbers taken from device memory:
// nothing here waits for the device, and an amax that a collective has just reduced on the stream becomes a
// scale without the host. Every tensor is on the device, on one stream, on which the work is enqueued; the
// device must be the current one. Pointers may be aligned to their elements only; 16 bytes are faster.
// Nothing is allocated. Thread safe. Throws Error(kTensor) for types, shapes and devices that do not fit,
// Error(kInternal) when a kernel cannot be started.
#pragma once

#include <cstdint>
#include <optional>

#include "core/tensor.hpp"
#include "kernels/block_scale.hpp"
#include "kernels/codec/scale.hpp"

namespace amaxscope::cuda {

/// kernels/amax.hpp. x: rows may be padded. out: u32 [1].
void amax(const TensorView& x, const MutableTensorView& out, bool accumulate = false);

/// scale = scale_from_amax(amax, options), scale_inv = RN(1 / scale). amax: u32 [1]; scale, scale_inv: f32
/// [1].
void scale_of_amax(const TensorView& amax, const ScaleOptions& options, const MutableTensorView& scale,
                   const MutableTensorView& scale_inv);

/// kernels/cast.hpp.
void cast_to_fp8(const TensorView& x, const TensorView& scale, const MutableTensorView& out);
void cast_transpose_to_fp8(const TensorView& x, const TensorView& scale, const MutableTensorView& out,
                           const MutableTensorView& out_transposed);

/// Elements of one, two or four bytes.
void transpose(const TensorView& x, const MutableTensorView& out);
/// Between different ones of f32, f16 and bf16.
void convert(const TensorView& x, const MutableTensorView& out);

/// kernels/block_scale.hpp.
void quantize_mxfp8(const TensorView& x, bool two_dimensional, const BlockOutputs& out);
void quantize_fp8_blocks(const TensorView& x, const Fp8BlockOptions& options, bool two_dimensional,
                         const BlockOutputs& out);
/// out: u32 [2], of what the rowwise and the columnwise codes are made of.
void nvfp4_amaxes(const TensorView& x, bool rotate, const MutableTensorView& out);
/// amaxes: u32 [2] as nvfp4_amaxes writes them, over all ranks that share the tensor; those of `cast` are not
/// read.
void quantize_nvfp4(const TensorView& x, const Nvfp4Cast& cast, const TensorView& amaxes,
                    const BlockOutputs& out);

/// kernels/dequantize.hpp.
void dequantize_fp8(const TensorView& codes, const TensorView& scale_inv, const MutableTensorView& out);
/// Extents of what a scale is about are powers of two. NVFP4: tensor_amax is u32 [1], and the amax of
/// codes.tensor_scale is not read.
void dequantize_blocks(const BlockScaledView& codes, const std::optional<TensorView>& tensor_amax,
                       const MutableTensorView& out);

}  // namespace amaxscope::cuda
