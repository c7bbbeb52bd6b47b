// Partial results of the one-pass statistics and how two of them make one. Shared by host and device; pure.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

namespace amaxscope {

namespace moments {

constexpr float kInf = std::numeric_limits<float>::infinity();

/// Integers that order as the floats do, -0 below +0: an integer minimum vectorizes and does not depend on
/// the order of the elements, a floating-point one does neither. Its own inverse.
constexpr std::int32_t ordered(std::int32_t bits) noexcept { return bits ^ ((bits >> 31) & 0x7FFFFFFF); }
constexpr std::int32_t order_key(float value) noexcept { return ordered(std::bit_cast<std::int32_t>(value)); }
constexpr float from_order_key(std::int32_t key) noexcept { return std::bit_cast<float>(ordered(key)); }

constexpr float least(float a, float b) noexcept {
  return from_order_key(order_key(a) < order_key(b) ? order_key(a) : order_key(b));
}
constexpr float greatest(float a, float b) noexcept {
  return from_order_key(order_key(a) > order_key(b) ? order_key(a) : order_key(b));
}

}  // namespace moments

/// Partial result of one tensor (or shard, or micro-batch); merge() gives that of the concatenation. A new
/// one is of no element: the identity of merge(). Sums and moments are over the finite elements, in double;
/// counts are exact.
struct TensorMoments {
  std::uint64_t numel = 0;             ///< all elements
  std::uint64_t nan = 0;               ///< NaN elements
  std::uint64_t inf = 0;               ///< +-Inf elements
  std::uint64_t nonzero = 0;           ///< elements that are not +-0 (NaN and Inf included)
  float min = moments::kInf;           ///< over the elements that are not NaN; +Inf when there is none
  float max = -moments::kInf;          ///< over the elements that are not NaN; -Inf when there is none
  float min_finite = moments::kInf;    ///< over the finite elements; +Inf when there is none
  float max_finite = -moments::kInf;   ///< over the finite elements; -Inf when there is none
  float amax_finite = 0;               ///< max |x| over the finite elements, 0 when there is none
  float amin_nonzero = moments::kInf;  ///< min |x| over the finite non-zero elements; +Inf when there is none
  double sum = 0;
  double l1 = 0;
  double sum_squares = 0;
  double mean = 0;  ///< of the finite elements
  double m2 = 0;    ///< sum of squared deviations from mean, of the finite elements
  double m3 = 0;    ///< sum of cubed deviations; means nothing unless every part was made with kFourth
  double m4 = 0;    ///< sum of fourth powers of deviations; as m3

  [[nodiscard]] constexpr std::uint64_t finite() const noexcept { return numel - nan - inf; }
  /// Chan, Golub and LeVeque's pairwise update: delta = mb - ma; m2 = m2a + m2b + delta^2 na nb / (na + nb),
  /// and Pebay's of the higher ones (Sandia report SAND2008-6212, formulas for m3 and m4 of two sets).
  constexpr void merge(const TensorMoments& other) noexcept;
};

constexpr void TensorMoments::merge(const TensorMoments& other) noexcept {
  const auto own = static_cast<double>(finite());
  const auto others = static_cast<double>(other.finite());
  if (others != 0 && own == 0) {
    mean = other.mean;
    m2 = other.m2;
    m3 = other.m3;
    m4 = other.m4;
  } else if (others != 0) {
    const double delta = other.mean - mean;
    const double all = own + others;
    const double a = own / all;
    const double b = others / all;
    m4 += other.m4 + delta * delta * delta * delta * (own * b) * (a * a - a * b + b * b) +
          6 * delta * delta * (a * a * other.m2 + b * b * m2) + 4 * delta * (a * other.m3 - b * m3);
    m3 += other.m3 + delta * delta * delta * (own * b) * (a - b) + 3 * delta * (a * other.m2 - b * m2);
    m2 += other.m2 + delta * delta * (own * others / all);
    mean += delta * (others / all);
  }
  numel += other.numel;
  nan += other.nan;
  inf += other.inf;
  nonzero += other.nonzero;
  min = moments::least(min, other.min);
  max = moments::greatest(max, other.max);
  min_finite = moments::least(min_finite, other.min_finite);
  max_finite = moments::greatest(max_finite, other.max_finite);
  amax_finite = amax_finite > other.amax_finite ? amax_finite : other.amax_finite;
  amin_nonzero = amin_nonzero < other.amin_nonzero ? amin_nonzero : other.amin_nonzero;
  sum += other.sum;
  l1 += other.l1;
  sum_squares += other.sum_squares;
}

}  // namespace amaxscope
