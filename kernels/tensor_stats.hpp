// Everything LogTensorStats reports of one tensor, in one pass over memory.
#pragma once

#include <cstdint>

#include "core/tensor.hpp"

namespace amaxscope {

/// Up to which central moment tensor_stats goes. The third and fourth take another pass over each cached
/// block.
enum class MomentOrder { kSecond, kFourth };

/// Partial result of one tensor (or shard, or micro-batch); merge() gives that of the concatenation.
/// Sums and moments are over the finite elements, in double; counts are exact.
struct TensorMoments {
  std::uint64_t numel = 0;    ///< all elements
  std::uint64_t nan = 0;      ///< NaN elements
  std::uint64_t inf = 0;      ///< +-Inf elements
  std::uint64_t nonzero = 0;  ///< elements that are not +-0 (NaN and Inf included)
  float min = 0;              ///< over the elements that are not NaN; +Inf when there is none
  float max = 0;              ///< over the elements that are not NaN; -Inf when there is none
  float min_finite = 0;       ///< over the finite elements; +Inf when there is none
  float max_finite = 0;       ///< over the finite elements; -Inf when there is none
  float amax_finite = 0;      ///< max |x| over the finite elements, 0 when there is none
  float amin_nonzero = 0;     ///< min |x| over the finite non-zero elements; +Inf when there is none
  double sum = 0;
  double l1 = 0;
  double sum_squares = 0;
  double mean = 0;  ///< of the finite elements
  double m2 = 0;    ///< sum of squared deviations from mean, of the finite elements
  double m3 = 0;    ///< sum of cubed deviations; means nothing unless every part was made with kFourth
  double m4 = 0;    ///< sum of fourth powers of deviations; as m3

  TensorMoments() noexcept;  ///< of no element: the identity of merge()
  [[nodiscard]] std::uint64_t finite() const noexcept { return numel - nan - inf; }
  /// Chan, Golub and LeVeque's pairwise update: delta = mb - ma; m2 = m2a + m2b + delta^2 na nb / (na + nb),
  /// and Pebay's of the higher ones (Sandia report SAND2008-6212, formulas for m3 and m4 of two sets).
  void merge(const TensorMoments& other) noexcept;
};

/// Moments about another centre; exact but for rounding.
struct CentredMoments {
  double m2 = 0;
  double m3 = 0;
  double m4 = 0;
};
/// Those of the finite elements about mean - shift: sums of (x - mean + shift)^k.
CentredMoments recentred(const TensorMoments& moments, double shift) noexcept;

/// x: f32, f16, bf16 on the CPU, any row stride (padding is never read). Throws Error(kTensor).
TensorMoments tensor_stats(const TensorView& x, MomentOrder order = MomentOrder::kSecond);

/// log2(max / min over the non-zero magnitudes), per block, the largest over the blocks; 0 for an all-zero
/// block. dims 1: blocks of `block` consecutive elements of a row (the last of a row may be shorter);
/// dims 2: block x block tiles, cut at the edges. With both_orientations also over the transpose.
/// +Inf when a block holds Inf beside finite non-zero elements (Inf - log2(min)), as in the reference; NaN
/// when a block holds NaN, or Inf and nothing else but zeros (Inf - Inf). Same inputs as tensor_stats.
double max_blockwise_dynamic_range(const TensorView& x, int block, int dims, bool both_orientations);

}  // namespace amaxscope
