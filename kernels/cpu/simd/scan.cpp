// Maxima of magnitudes.
#include <algorithm>
#include <bit>
#include <limits>

#include "kernels/cpu/simd/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd/scan.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/simd/extremes-inl.hpp"

#if AMAXSCOPE_SIMD
HWY_BEFORE_NAMESPACE();
namespace amaxscope::cpu {
namespace HWY_NAMESPACE {

template <class T>
std::uint32_t largest(const T* x, std::size_t count) {
  using Bits = typename PatternOf<T>::Bits;
  const hn::ScalableTag<Bits> d;
  constexpr std::size_t kLanesOfBits = HWY_MAX_BYTES / sizeof(Bits);
  const auto mask = hn::Set(d, std::numeric_limits<Bits>::max() >> 1);
  const auto* bits = reinterpret_cast<const Bits*>(x);
  auto a = hn::Zero(d);
  auto b = a;
  auto c = a;
  auto e = a;
  std::size_t i = 0;
  for (; i + 4 * kLanesOfBits <= count; i += 4 * kLanesOfBits) {
    prefetch<4 * HWY_MAX_BYTES>(bits + i);
    a = hn::Max(a, hn::And(mask, hn::LoadU(d, bits + i)));
    b = hn::Max(b, hn::And(mask, hn::LoadU(d, bits + i + kLanesOfBits)));
    c = hn::Max(c, hn::And(mask, hn::LoadU(d, bits + i + 2 * kLanesOfBits)));
    e = hn::Max(e, hn::And(mask, hn::LoadU(d, bits + i + 3 * kLanesOfBits)));
  }
  Bits result = largest_of(hn::Max(hn::Max(a, b), hn::Max(c, e)));
  for (; i < count; ++i) {
    result = std::max(result, static_cast<Bits>(bits[i] & (std::numeric_limits<Bits>::max() >> 1)));
  }
  return PatternOf<T>::as_fp32(result);
}

/// NaN shows as a maximum above Inf; only then a stretch is read again without it. Stretches are long,
/// because each ends with a maximum across the lanes.
template <class T>
std::uint32_t amax(const T* x, std::size_t count) {
  constexpr std::size_t kStretch = (std::size_t{32} << 10) / sizeof(T);
  std::uint32_t result = 0;
  for (std::size_t first = 0; first < count; first += kStretch) {
    const std::size_t length = std::min(kStretch, count - first);
    std::uint32_t here = largest(x + first, length);
    if (here > kInfinity) here = kReferenceLoops.of<T>().amax(x + first, length);
    result = std::max(result, here);
  }
  return result;
}

template <class T>
void column_amax(const T* x, std::size_t count, std::uint32_t* keys) {
  const Words d;
  std::size_t i = 0;
  for (; i + kFloats <= count; i += kFloats) {
    const auto value = magnitude(load(x + i));
    const auto key = hn::IfThenZeroElse(hn::Gt(value, hn::Set(d, kInfinity)), value);
    hn::StoreU(hn::Max(key, hn::LoadU(d, keys + i)), d, keys + i);
  }
  kReferenceLoops.of<T>().column_amax(x + i, count - i, keys + i);
}

template <class T>
void put(ElementLoops<T>& loops) {
  loops.amax = amax<T>;
  loops.largest = largest<T>;
  loops.column_amax = column_amax<T>;
}
void put_scan(Loops& loops) {
  put(loops.f32);
  put(loops.bf16);
  put(loops.f16);
}

}  // namespace HWY_NAMESPACE
}  // namespace amaxscope::cpu
HWY_AFTER_NAMESPACE();
#endif
