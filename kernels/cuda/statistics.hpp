// Statistics of a tensor on a device, in one pass, left in device memory: the caller copies them when it
// wants them. Requirements, streams and errors as in quantize.hpp. Counts, minima and maxima are those of the
// functions of these names in kernels/; sums agree within the bounds of docs/cuda.md, and are the same each
// time on one kind of device.
#pragma once

#include <cstddef>

#include "core/tensor.hpp"
#include "kernels/quantization_error.hpp"
#include "kernels/result_slot.hpp"
#include "kernels/tensor_stats.hpp"

namespace amaxscope::cuda {

/// Scratch memory that each of the calls below needs, in bytes: u8 [statistics_workspace()] or more, aligned
/// to 16. Work of one stream may share it.
std::size_t statistics_workspace() noexcept;

/// out: u8 [sizeof(TensorMoments)], aligned to 16, receives a TensorMoments. x: rows may be padded.
void tensor_stats(const TensorView& x, MomentOrder order, const MutableTensorView& workspace,
                  const MutableTensorView& out);

/// out: u8 [sizeof(QuantizationError)], aligned to 16, receives a QuantizationError. x: rows may be padded.
/// scale, scale_inv: f32 [1].
void quantization_error(const TensorView& x, const TensorView& codes, const TensorView& scale,
                        const TensorView& scale_inv, const MutableTensorView& workspace,
                        const MutableTensorView& out);
/// Of codes that were never written.
void quantization_error_of_cast(const TensorView& x, DType format, const TensorView& scale,
                                const MutableTensorView& workspace, const MutableTensorView& out);

/// The same, added to what a slot holds: of TensorMoments, of ScaledError, and of the bits of an amax (u32).
void add_tensor_stats(const TensorView& x, MomentOrder order, const ResultSlot& slot);
void add_quantization_error(const ScaledQuantization& what, const ResultSlot& slot);
void add_amax(const TensorView& x, const ResultSlot& slot);

}  // namespace amaxscope::cuda
