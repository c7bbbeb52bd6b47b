// What the files of simd/ share, once for each target: tags, loads that widen to fp32, prefetching. Included
// by them after hwy/foreach_target.h; no include guard in the usual sense.
#if defined(AMAXSCOPE_VECTORS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef AMAXSCOPE_VECTORS_INL_HPP
#undef AMAXSCOPE_VECTORS_INL_HPP
#else
#define AMAXSCOPE_VECTORS_INL_HPP
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "core/half.hpp"
#include "kernels/cpu/loops.hpp"

// The fallback below AVX2 and NEON has one lane: it is the reference's task.
#undef AMAXSCOPE_SIMD
#define AMAXSCOPE_SIMD (HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON)

#if AMAXSCOPE_SIMD
HWY_BEFORE_NAMESPACE();
namespace amaxscope::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using Words = hn::ScalableTag<std::uint32_t>;
using Doubles = hn::ScalableTag<double>;
using Bytes = hn::ScalableTag<std::uint8_t>;
using VFloat = hn::Vec<Floats>;
using VWord = hn::Vec<Words>;
using VDouble = hn::Vec<Doubles>;

constexpr std::size_t kFloats = HWY_MAX_BYTES / sizeof(float);
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

HWY_INLINE VWord magnitude(VFloat x) {
  return hn::And(hn::BitCast(Words(), x), hn::Set(Words(), kMagnitudeMask));
}

/// What a loop over `count` elements will read soon. A hardware prefetcher stops at the end of a page, and
/// with many instructions to a cache line too few loads are under way without this.
constexpr std::size_t kPrefetchAhead = 4096;
template <std::size_t kBytes>
HWY_INLINE void prefetch(const void* now) {
  const auto* ahead = static_cast<const char*>(now) + kPrefetchAhead;
  for (std::size_t i = 0; i < kBytes; i += 64) hwy::Prefetch(ahead + i);
}

}  // namespace HWY_NAMESPACE
}  // namespace amaxscope::cpu
HWY_AFTER_NAMESPACE();
#endif

#endif
