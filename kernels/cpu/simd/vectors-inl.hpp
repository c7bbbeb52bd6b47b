// What the files of simd/ share, once for each target: tags, loads that widen to fp32, prefetching. Included
// by them after hwy/foreach_target.h; no include guard in the usual sense.
#if defined(AMAXSCOPE_VECTORS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef AMAXSCOPE_VECTORS_INL_HPP
#undef AMAXSCOPE_VECTORS_INL_HPP
#else
#define AMAXSCOPE_VECTORS_INL_HPP
#endif

#include <array>
#include <type_traits>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "core/half.hpp"
#include "kernels/cpu/loops.hpp"

// The fallback below AVX2 and NEON has one lane: it is the reference's task.
#undef AMAXSCOPE_SIMD
#define AMAXSCOPE_SIMD \
  (HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_NEON)

#if AMAXSCOPE_SIMD
HWY_BEFORE_NAMESPACE();
namespace amaxscope::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using Words = hn::ScalableTag<std::uint32_t>;
using Shorts = hn::ScalableTag<std::uint16_t>;
using Doubles = hn::ScalableTag<double>;
using Bytes = hn::ScalableTag<std::uint8_t>;
using VFloat = hn::Vec<Floats>;
using VWord = hn::Vec<Words>;
using VShort = hn::Vec<Shorts>;
using VDouble = hn::Vec<Doubles>;
using VByte = hn::Vec<Bytes>;

constexpr std::size_t kFloats = HWY_MAX_BYTES / sizeof(float);
constexpr std::size_t kBytes = HWY_MAX_BYTES;
constexpr std::size_t kDoubles = HWY_MAX_BYTES / sizeof(double);
constexpr std::uint32_t kMagnitudeMask = 0x7FFFFFFFU;
constexpr std::uint32_t kInfinity = 0x7F800000U;

/// kFloats elements as fp32, in their order.
HWY_INLINE VFloat load(const float* x) { return hn::LoadU(Floats(), x); }
HWY_INLINE VFloat load(const BF16* x) {
  const hn::Rebind<std::uint16_t, Floats> half;
  const auto bits = hn::LoadU(half, reinterpret_cast<const std::uint16_t*>(x));
  return hn::BitCast(Floats(), hn::ShiftLeft<16>(hn::PromoteTo(Words(), bits)));
}

HWY_INLINE VDouble low_doubles(VFloat x) {
  return hn::PromoteTo(Doubles(), hn::LowerHalf(hn::Half<Floats>(), x));
}
HWY_INLINE VDouble high_doubles(VFloat x) {
  return hn::PromoteTo(Doubles(), hn::UpperHalf(hn::Half<Floats>(), x));
}

/// One sum in kLanes lanes of double, in the order in which over_step() brings the elements.
constexpr std::size_t kParts = kLanes / kDoubles;
struct Lanes {
  VDouble parts[kParts];
  HWY_INLINE Lanes() {
    for (auto& part : parts) part = hn::Zero(Doubles());
  }
  /// Lane by lane as loops.hpp numbers them.
  template <class T>
  HWY_INLINE std::array<double, kLanes> in_order() const;
  /// Added from the first lane to the last.
  template <class T>
  HWY_INLINE double total() const {
    double sum = 0;
    for (const double lane : in_order<T>()) sum += lane;
    return sum;
  }
};

/// Elements to a step of over_step().
template <class T>
constexpr std::size_t kStep = sizeof(T) == 4 ? kLanes : 2 * kLanes;
constexpr std::size_t kVectorsOfLanes = kLanes / kFloats;

/// The patterns of kStep elements as they lie in memory: action(vector of patterns, its index).
template <class Action>
HWY_INLINE void over_step(const float* x, Action&& action) {
  const auto* bits = reinterpret_cast<const std::uint32_t*>(x);
  for (std::size_t v = 0; v < kVectorsOfLanes; ++v) action(hn::LoadU(Words(), bits + v * kFloats), v);
}
template <class T, class Action>
HWY_INLINE void over_step(const T* x, Action&& action) {
  const auto* bits = reinterpret_cast<const std::uint16_t*>(x);
  for (std::size_t v = 0; v < kVectorsOfLanes; ++v) action(hn::LoadU(Shorts(), bits + v * 2 * kFloats), v);
}

HWY_INLINE VFloat widened_f16(hn::Vec<hn::Half<Shorts>> bits) {
  return hn::PromoteTo(Floats(), hn::BitCast(hn::Rebind<hwy::float16_t, Floats>(), bits));
}

/// The elements of such a vector as fp32 and the parts of Lanes that they belong to: action(values, part of
/// the lower half, part of the upper half). bf16 is taken apart into even and odd elements: one operation to
/// a vector, and nothing moves across it.
template <class T, class V, class Action>
HWY_INLINE void over_floats(V bits, std::size_t vector, Action&& action) {
  const std::size_t first = vector * 2 * kFloats;  // element of a vector of 16 bits
  if constexpr (std::is_same_v<T, float>) {
    action(hn::BitCast(Floats(), bits), 2 * vector, 2 * vector + 1);
  } else if constexpr (std::is_same_v<T, F16>) {
    const hn::Half<Shorts> half;
    const std::size_t low = first % kLanes / kDoubles;
    const std::size_t high = (first + kFloats) % kLanes / kDoubles;
    action(widened_f16(hn::LowerHalf(half, bits)), low, low + 1);
    action(widened_f16(hn::UpperHalf(half, bits)), high, high + 1);
  } else {
    const Words d;
    const auto pairs = hn::BitCast(d, bits);
    const std::size_t low = first % kLanes / kFloats;  // of even elements
    const std::size_t high = (first + kFloats) % kLanes / kFloats;
    action(hn::BitCast(Floats(), hn::ShiftLeft<16>(pairs)), low, high);
    action(hn::BitCast(Floats(), hn::And(pairs, hn::Set(d, 0xFFFF0000U))), kVectorsOfLanes + low,
           kVectorsOfLanes + high);
  }
}

template <class T>
HWY_INLINE std::array<double, kLanes> Lanes::in_order() const {
  alignas(64) std::array<double, kLanes> stored;
  for (std::size_t k = 0; k < kParts; ++k) hn::Store(parts[k], Doubles(), stored.data() + k * kDoubles);
  if constexpr (!std::is_same_v<T, BF16>) {
    return stored;
  } else {
    std::array<double, kLanes> lanes;
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const std::size_t part = lane % 2 * kVectorsOfLanes + lane / kFloats;
      lanes[lane] = stored[part * kDoubles + lane % kFloats / 2];
    }
    return lanes;
  }
}

HWY_INLINE VFloat load(const F16* x) {
  const hn::Rebind<std::uint16_t, Floats> half;
  const auto bits = hn::LoadU(half, reinterpret_cast<const std::uint16_t*>(x));
  return hn::PromoteTo(Floats(), hn::BitCast(hn::Rebind<hwy::float16_t, Floats>(), bits));
}

HWY_INLINE VWord magnitude(VFloat x) {
  return hn::And(hn::BitCast(Words(), x), hn::Set(Words(), kMagnitudeMask));
}

/// to_bf16 of each, in words.
HWY_INLINE VWord bf16_of(VFloat value) {
  const Words d;
  const auto bits = hn::BitCast(d, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1U));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(d, 0x7FFFU))));
  const auto is_nan = hn::Gt(hn::And(bits, hn::Set(d, kMagnitudeMask)), hn::Set(d, kInfinity));
  return hn::IfThenElse(is_nan, hn::Set(d, 0x7FFFU), rounded);
}

/// What a loop over `count` elements will read soon. A hardware prefetcher stops at the end of a page, and
/// with many instructions to a cache line too few loads are under way without this.
constexpr std::size_t kPrefetchAhead = 4096;
template <std::size_t kSize>
HWY_INLINE void prefetch_here(const void* soon) {
  for (std::size_t i = 0; i < kSize; i += 64) hwy::Prefetch(static_cast<const char*>(soon) + i);
}
template <std::size_t kSize>
HWY_INLINE void prefetch(const void* now) {
  prefetch_here<kSize>(static_cast<const char*>(now) + kPrefetchAhead);
}

}  // namespace HWY_NAMESPACE
}  // namespace amaxscope::cpu
HWY_AFTER_NAMESPACE();
#endif

#endif
