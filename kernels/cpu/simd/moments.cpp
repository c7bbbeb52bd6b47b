// Moments of a block.
#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "kernels/cpu/simd/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd/moments.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/reference_sums.hpp"
#include "kernels/cpu/simd/extremes-inl.hpp"

#if AMAXSCOPE_SIMD
HWY_BEFORE_NAMESPACE();
namespace amaxscope::cpu {
namespace HWY_NAMESPACE {

using LaneArray = std::array<double, kLanes>;

HWY_INLINE double added(const LaneArray& lanes) {
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

/// The elements of a vector of over_step(x) in double: action(values, part). They are loaded again, by
/// halves: that is cheaper than taking a vector apart.
HWY_INLINE void over_doubles(const float* x, std::size_t vector, auto&& action) {
  const hn::Rebind<float, Doubles> half;
  for (const std::size_t part : {2 * vector, 2 * vector + 1}) {
    action(hn::PromoteTo(Doubles(), hn::LoadU(half, x + part * kDoubles)), part);
  }
}
HWY_INLINE void over_doubles(const BF16* x, std::size_t vector, auto&& action) {
  const hn::Half<Words> half;
  const hn::Rebind<float, Doubles> floats;
  for (const std::size_t first : {2 * vector * kFloats, (2 * vector + 1) * kFloats}) {
    const auto pairs = hn::LoadU(half, reinterpret_cast<const std::uint32_t*>(x + first));
    const std::size_t part = first % kLanes / kFloats;  // of even elements
    action(hn::PromoteTo(Doubles(), hn::BitCast(floats, hn::ShiftLeft<16>(pairs))), part);
    action(hn::PromoteTo(Doubles(), hn::BitCast(floats, hn::And(pairs, hn::Set(half, 0xFFFF0000U)))),
           kVectorsOfLanes + part);
  }
}
HWY_INLINE void over_doubles(const F16* x, std::size_t vector, auto&& action) {
  const hn::Rebind<float, Doubles> floats;
  const hn::Rebind<std::uint16_t, Doubles> shorts;
  const hn::Rebind<hwy::float16_t, Doubles> halves;
  for (std::size_t k = 4 * vector; k < 4 * vector + 4; ++k) {
    const auto bits = hn::LoadU(shorts, reinterpret_cast<const std::uint16_t*>(x + k * kDoubles));
    action(hn::PromoteTo(Doubles(), hn::PromoteTo(floats, hn::BitCast(halves, bits))),
           k * kDoubles % kLanes / kDoubles);
  }
}

HWY_INLINE std::uint32_t sum_of(VWord v) { return hn::GetLane(hn::SumOfLanes(Words(), v)); }
HWY_INLINE std::uint32_t sum_of(VShort v) {
  const auto pairs = hn::BitCast(Words(), v);
  return sum_of(hn::Add(hn::ShiftRight<16>(pairs), hn::And(pairs, hn::Set(Words(), 0xFFFFU))));
}

/// The number of elements that are not zero, and those from which the least and the greatest follow: the
/// largest pattern as a signed integer is that of the greatest element unless all have the sign, as an
/// unsigned one that of the least unless none has.
template <class T>
class Range {
 public:
  using Bits = typename PatternOf<T>::Bits;
  using Tag = hn::ScalableTag<Bits>;
  using Signed = hn::RebindToSigned<Tag>;

  HWY_INLINE Range()
      : greatest_(hn::Set(Signed(), std::numeric_limits<hn::TFromD<Signed>>::min())),
        largest_(hn::Zero(Tag())),
        nonzero_(hn::Zero(Tag())) {}

  HWY_INLINE void add(hn::Vec<Tag> patterns) {
    greatest_ = hn::Max(greatest_, hn::BitCast(Signed(), patterns));
    largest_ = hn::Max(largest_, patterns);
    nonzero_ = hn::Add(nonzero_, hn::Min(seen_.add(patterns), hn::Set(Tag(), Bits{1})));
  }
  /// One more element.
  HWY_INLINE void add_one(T x) {
    const auto pattern = std::bit_cast<Bits>(x);
    const auto magnitude = static_cast<Bits>(pattern & Magnitudes<T>::kMask);
    const std::uint32_t magnitude_bits = PatternOf<T>::as_fp32(magnitude);
    alone_greatest_ = std::max(alone_greatest_, static_cast<hn::TFromD<Signed>>(pattern));
    alone_largest_ = std::max(alone_largest_, pattern);
    alone_nonzero_ += magnitude != 0 ? 1U : 0U;
    amax_ = std::max(amax_, magnitude_bits);
    if (magnitude != 0) least_ = std::min(least_, magnitude_bits);
  }
  /// Puts all but sums into result; false when an element is not finite. There is at least one.
  HWY_INLINE bool get(TensorMoments& result) const {
    // Flipping the sign turns the order of signed integers into that of unsigned ones.
    const auto sign = hn::Set(Tag(), static_cast<Bits>(Magnitudes<T>::kMask + 1U));
    const auto amax = std::max(amax_, seen_.largest());
    if (amax >= kInfinity) return false;
    const std::uint32_t least = std::min(least_, seen_.least());
    const auto greatest = static_cast<hn::TFromD<Signed>>(
        largest_of(hn::Xor(hn::BitCast(Tag(), greatest_), sign)) ^ (Magnitudes<T>::kMask + 1U));
    const auto signed_max = std::max(alone_greatest_, greatest);
    const Bits unsigned_max = std::max(alone_largest_, largest_of(largest_));
    const std::uint64_t count = std::uint64_t{alone_nonzero_} + sum_of(nonzero_);
    const bool zeros = count < result.numel;
    const float nearest_zero = zeros ? 0.0F : std::bit_cast<float>(least);
    result.nonzero = count;
    result.amax_finite = std::bit_cast<float>(amax);
    if (count != 0) result.amin_nonzero = std::bit_cast<float>(least);
    result.max = signed_max < 0 ? -nearest_zero : as_float(static_cast<Bits>(signed_max));
    result.min = unsigned_max <= Magnitudes<T>::kMask ? nearest_zero : as_float(unsigned_max);
    result.min_finite = result.min;
    result.max_finite = result.max;
    return true;
  }

 private:
  static HWY_INLINE float as_float(Bits pattern) {
    return std::bit_cast<float>(PatternOf<T>::as_fp32(pattern));
  }

  Magnitudes<T> seen_;
  hn::Vec<Signed> greatest_;
  hn::Vec<Tag> largest_;
  hn::Vec<Tag> nonzero_;
  // Of the elements that do not fill a step.
  hn::TFromD<Signed> alone_greatest_ = std::numeric_limits<hn::TFromD<Signed>>::min();
  Bits alone_largest_ = 0;
  std::uint32_t alone_nonzero_ = 0;
  std::uint32_t amax_ = 0;
  std::uint32_t least_ = ~0U;
};

/// Extremes and plain sums. The squares of fp32 are exact in double, so fusing changes nothing. Magnitudes
/// are added as a product with 1, because adders are what the conversions to double wait for. False when
/// there is something that is not finite.
template <class T>
HWY_INLINE bool plain_sums(const T* x, std::size_t count, TensorMoments& result) {
  const auto one = hn::Set(Doubles(), 1.0);
  Range<T> range;
  Lanes sum;
  Lanes l1;
  Lanes squares;
  std::size_t i = 0;
  for (; i + kStep<T> <= count; i += kStep<T>) {
    prefetch<kStep<T> * sizeof(T)>(x + i);
    over_step(x + i, [&](auto patterns, std::size_t vector) HWY_ATTR {
      range.add(patterns);
      over_doubles(x + i, vector, [&](VDouble v, std::size_t part) HWY_ATTR {
        sum.parts[part] = hn::Add(sum.parts[part], v);
        l1.parts[part] = hn::MulAdd(hn::Abs(v), one, l1.parts[part]);
        squares.parts[part] = hn::MulAdd(v, v, squares.parts[part]);
      });
    });
  }
  LaneArray sums = sum.in_order<T>();
  LaneArray l1s = l1.in_order<T>();
  LaneArray all_squares = squares.in_order<T>();
  for (; i < count; ++i) {
    range.add_one(x[i]);
    const auto v = static_cast<double>(to_float(x[i]));
    sums[i % kLanes] += v;
    l1s[i % kLanes] += v < 0 ? -v : v;
    all_squares[i % kLanes] += v * v;
  }
  result.sum = added(sums);
  result.l1 = added(l1s);
  result.sum_squares = added(all_squares);
  return range.get(result);
}

/// Sums of powers of the deviations from the mean, of a block that is in L1. Its powers are not exact in
/// double: each is rounded, as the reference does it.
struct Deviations {
  double first = 0, second = 0, third = 0, fourth = 0;
};
template <bool kFourth, class T>
HWY_INLINE Deviations deviations(const T* x, std::size_t count, double mean) {
  const auto m = hn::Set(Doubles(), mean);
  Lanes sums[kFourth ? 4 : 2];
  std::size_t i = 0;
  for (; i + kStep<T> <= count; i += kStep<T>) {
    for (std::size_t vector = 0; vector < kVectorsOfLanes; ++vector) {
      over_doubles(x + i, vector, [&](VDouble v, std::size_t part) HWY_ATTR {
        const auto difference = hn::Sub(v, m);
        const auto square = hn::Mul(difference, difference);
        sums[0].parts[part] = hn::Add(sums[0].parts[part], difference);
        sums[1].parts[part] = hn::Add(sums[1].parts[part], square);
        if constexpr (kFourth) {
          sums[2].parts[part] = hn::Add(sums[2].parts[part], hn::Mul(square, difference));
          sums[3].parts[part] = hn::Add(sums[3].parts[part], hn::Mul(square, square));
        }
      });
    }
  }
  std::array<LaneArray, 4> lanes = {};
  for (std::size_t k = 0; k < (kFourth ? 4U : 2U); ++k) lanes[k] = sums[k].template in_order<T>();
  for (; i < count; ++i) {
    const double difference = static_cast<double>(to_float(x[i])) - mean;
    const double square = difference * difference;
    lanes[0][i % kLanes] += difference;
    lanes[1][i % kLanes] += square;
    if constexpr (kFourth) {
      lanes[2][i % kLanes] += square * difference;
      lanes[3][i % kLanes] += square * square;
    }
  }
  return {added(lanes[0]), added(lanes[1]), added(lanes[2]), added(lanes[3])};
}

template <class T>
TensorMoments moments(const T* x, std::size_t count, MomentOrder order) {
  TensorMoments result;
  result.numel = count;
  if (!plain_sums(x, count, result)) return reference::moments(x, count, order);
  const auto n = static_cast<double>(count);
  result.mean = result.sum / n;
  const std::optional<double> m2 = reference::m2_of_sums(result.sum, result.sum_squares, n);
  result.m2 = m2.value_or(0.0);
  const bool fourth = order == MomentOrder::kFourth;
  if (m2 && !fourth) return result;
  const Deviations about =
      fourth ? deviations<true>(x, count, result.mean) : deviations<false>(x, count, result.mean);
  if (!m2) result.m2 = std::max(0.0, about.second - about.first * about.first / n);
  if (fourth) {
    const double r = about.first / n;
    result.m3 = about.third - 3 * r * about.second + 2 * n * r * r * r;
    result.m4 =
        std::max(0.0, about.fourth - 4 * r * about.third + 6 * r * r * about.second - 3 * n * r * r * r * r);
  }
  return result;
}

void put_moments(Loops& loops) {
  loops.f32.moments = moments<float>;
  loops.bf16.moments = moments<BF16>;
  loops.f16.moments = moments<F16>;
}

}  // namespace HWY_NAMESPACE
}  // namespace amaxscope::cpu
HWY_AFTER_NAMESPACE();
#endif
