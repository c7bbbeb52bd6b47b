// amax: the largest magnitude of a tensor, as the bit pattern of a non-negative float in a u32, so that an
// integer MAX of it is the same on every device, library and rank order (design: "amax is a uint32").
#pragma once

#include <cstdint>

#include "core/tensor.hpp"
#include "kernels/codec/scale.hpp"

namespace amaxscope {

/// out[0] = bits of max |x| over the elements that are not NaN; Inf is kept; 0 for no element or all NaN.
/// With accumulate the result is the maximum of that and what out[0] held.
/// x: f32, f16 or bf16, rows may be padded (row_stride). out: u32 [1] on x's device.
/// Asynchronous on x's stream on a device. Throws Error(kTensor) for another dtype, shape or device.
void amax(const TensorView& x, const MutableTensorView& out, bool accumulate = false);

/// The same on the host. Waits for the device where x is on one.
std::uint32_t amax_bits(const TensorView& x);

/// scale = scale_from_amax(amax, options), scale_inv = RN(1 / scale), without the host on a device. amax: u32
/// [1]; scale, scale_inv: f32 [1], all on one device. Throws Error(kTensor).
void scale_of_amax(const TensorView& amax, const ScaleOptions& options, const MutableTensorView& scale,
                   const MutableTensorView& scale_inv);

}  // namespace amaxscope
