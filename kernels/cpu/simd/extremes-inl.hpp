// The largest and the least non-zero magnitude that a loop has seen, once for each target. Included as
// vectors-inl.hpp.
#if defined(AMAXSCOPE_EXTREMES_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef AMAXSCOPE_EXTREMES_INL_HPP
#undef AMAXSCOPE_EXTREMES_INL_HPP
#else
#define AMAXSCOPE_EXTREMES_INL_HPP
#endif

#include <algorithm>
#include <bit>
#include <limits>

#include "kernels/cpu/simd/vectors-inl.hpp"

#if AMAXSCOPE_SIMD
HWY_BEFORE_NAMESPACE();
namespace amaxscope::cpu {
namespace HWY_NAMESPACE {

/// Patterns of T, f32, bf16 or f16, as integers; those without a sign have the order of the numbers.
template <class T>
struct PatternOf {
  using Bits = std::uint32_t;
  static constexpr std::uint32_t as_fp32(Bits pattern) { return pattern; }  ///< that of the same number
};
template <>
struct PatternOf<BF16> {
  using Bits = std::uint16_t;
  static constexpr std::uint32_t as_fp32(Bits pattern) { return std::uint32_t{pattern} << 16; }
};
template <>
struct PatternOf<F16> {
  using Bits = std::uint16_t;
  static constexpr std::uint32_t as_fp32(Bits pattern) {
    return std::bit_cast<std::uint32_t>(to_float(F16{pattern}));
  }
};

HWY_INLINE std::uint32_t largest_of(VWord v) { return hn::GetLane(hn::MaxOfLanes(Words(), v)); }
HWY_INLINE std::uint16_t largest_of(VShort v) {
  const auto pairs = hn::BitCast(Words(), v);
  const auto larger = hn::Max(hn::ShiftRight<16>(pairs), hn::And(pairs, hn::Set(Words(), 0xFFFFU)));
  return static_cast<std::uint16_t>(largest_of(larger));
}
template <class V>
HWY_INLINE auto least_of(V v) {
  return static_cast<decltype(largest_of(v))>(~largest_of(hn::Not(v)));
}

/// In the width of the elements: half the work for bf16.
template <class T>
class Magnitudes {
 public:
  using Bits = typename PatternOf<T>::Bits;
  using Tag = hn::ScalableTag<Bits>;
  using Vector = hn::Vec<Tag>;
  static constexpr Bits kMask = std::numeric_limits<Bits>::max() >> 1;

  HWY_INLINE Magnitudes()
      : largest_(hn::Zero(Tag())), least_(hn::Set(Tag(), std::numeric_limits<Bits>::max())) {}

  /// Returns the magnitudes.
  HWY_INLINE Vector add(Vector patterns) {
    const auto value = hn::And(patterns, hn::Set(Tag(), kMask));
    largest_ = hn::Max(largest_, value);
    least_ = hn::Min(least_, hn::Sub(value, hn::Set(Tag(), Bits{1})));  // zero becomes the largest integer
    return value;
  }
  /// As fp32 bits: of the largest, and of the least that is not zero; all ones when there is none.
  HWY_INLINE std::uint32_t largest() const { return PatternOf<T>::as_fp32(largest_of(largest_)); }
  HWY_INLINE std::uint32_t least() const {
    const Bits less_one = least_of(least_);
    if (less_one == std::numeric_limits<Bits>::max()) return ~0U;
    return PatternOf<T>::as_fp32(static_cast<Bits>(less_one + 1U));
  }

 private:
  Vector largest_;
  Vector least_;
};

}  // namespace HWY_NAMESPACE
}  // namespace amaxscope::cpu
HWY_AFTER_NAMESPACE();
#endif

#endif
