// What cuBLASLt wants of block-scaled codes beside the codes. On the device and stream of the codes, without
// a wait; checks and errors as quantize.hpp.
#pragma once

#include "core/tensor.hpp"
#include "kernels/block_scaled_view.hpp"

namespace amaxscope::cuda {

/// Bytes that tile_scales() writes.
[[nodiscard]] std::int64_t tiled_scales_bytes(const BlockScaledView& codes);
/// Scales of MXFP8 or NVFP4 (one byte for each stretch of codes along the depth of the product) in tiles of
/// 128 rows x 4 stretches, the tiles row by row, zero beyond the matrix. In a tile, scale (r, c) is byte
/// r % 32 * 16 + r / 32 * 4 + c: cuBLAS manual, "1D Block Scaling Factors Layout". out: u8
/// [tiled_scales_bytes()], aligned to 16 bytes.
void tile_scales(const BlockScaledView& codes, const MutableTensorView& out);

/// out: f32 [2] = {RN(RN(amax * factor of a) * RN(amax * factor of b)), beta}, of codes with a tensor_scale
/// and its device_amax.
void product_scale(const BlockScaledView& a, const BlockScaledView& b, float beta,
                   const MutableTensorView& out);

}  // namespace amaxscope::cuda
