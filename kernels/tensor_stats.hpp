// Everything LogTensorStats reports of one tensor, in one pass over memory.
#pragma once

#include <cstdint>

#include "core/tensor.hpp"
#include "kernels/moments.hpp"

namespace amaxscope {

/// Up to which central moment tensor_stats goes. The third and fourth take another pass over each cached
/// block.
enum class MomentOrder { kSecond, kFourth };

/// Moments about another centre; exact but for rounding.
struct CentredMoments {
  double m2 = 0;
  double m3 = 0;
  double m4 = 0;
};
/// Those of the finite elements about mean - shift: sums of (x - mean + shift)^k.
CentredMoments recentred(const TensorMoments& moments, double shift) noexcept;

/// x: f32, f16, bf16, any row stride (padding is never read). Waits for the device where x is on one.
/// Throws Error(kTensor).
TensorMoments tensor_stats(const TensorView& x, MomentOrder order = MomentOrder::kSecond);

/// log2(max / min over the non-zero magnitudes), per block, the largest over the blocks; 0 for an all-zero
/// block. dims 1: blocks of `block` consecutive elements of a row (the last of a row may be shorter);
/// dims 2: block x block tiles, cut at the edges. With both_orientations also over the transpose.
/// +Inf when a block holds Inf beside finite non-zero elements (Inf - log2(min)), as in the reference; NaN
/// when a block holds NaN, or Inf and nothing else but zeros (Inf - Inf). CPU; else as tensor_stats.
double max_blockwise_dynamic_range(const TensorView& x, int block, int dims, bool both_orientations);

}  // namespace amaxscope
