// MXFP8: blocks of 32 elements under a power of two each.
#include <algorithm>
#include <array>

#include "kernels/cpu/simd/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd/mx.cpp"
#include <hwy/foreach_target.h>

#include "kernels/codec/scale.hpp"
#include "kernels/cpu/simd/encode-inl.hpp"
#include "kernels/cpu/simd/extremes-inl.hpp"

#if AMAXSCOPE_SIMD
HWY_BEFORE_NAMESPACE();
namespace amaxscope::cpu {
namespace HWY_NAMESPACE {

constexpr std::size_t kMx = 32;
constexpr std::size_t kGroup = kFloats;  // blocks whose scales are made together, one in each word

/// Of a block's magnitudes as patterns of T: maxima of some of them in each word.
HWY_INLINE VWord maxima(const float* x) {
  const Words d;
  const auto* bits = reinterpret_cast<const std::uint32_t*>(x);
  const auto mask = hn::Set(d, kMagnitudeMask);
  auto largest = hn::And(hn::LoadU(d, bits), mask);
  for (std::size_t i = kFloats; i < kMx; i += kFloats) {
    largest = hn::Max(largest, hn::And(hn::LoadU(d, bits + i), mask));
  }
  return largest;
}
template <class T>
HWY_INLINE VWord maxima(const T* x) {
  const Shorts d;
  const auto* bits = reinterpret_cast<const std::uint16_t*>(x);
  const auto mask = hn::Set(d, Magnitudes<T>::kMask);
  auto largest = hn::And(hn::LoadU(d, bits), mask);
  for (std::size_t i = 2 * kFloats; i < kMx; i += 2 * kFloats) {
    largest = hn::Max(largest, hn::And(hn::LoadU(d, bits + i), mask));
  }
  const auto pairs = hn::BitCast(Words(), largest);
  return hn::Max(hn::ShiftRight<16>(pairs), hn::And(pairs, hn::Set(Words(), 0xFFFFU)));
}

/// The largest of four blocks in their order, in four words.
template <class T>
HWY_INLINE auto largest_of_four(const T* x) {
  const Words d;
  const hn::Repartition<std::uint64_t, Words> wide;
  const auto a = maxima(x);
  const auto b = maxima(x + kMx);
  const auto c = maxima(x + 2 * kMx);
  const auto e = maxima(x + 3 * kMx);
  const auto ab = hn::BitCast(wide, hn::Max(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b)));
  const auto ce = hn::BitCast(wide, hn::Max(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e)));
  const auto all = hn::Max(hn::BitCast(d, hn::InterleaveLower(wide, ab, ce)),
                           hn::BitCast(d, hn::InterleaveUpper(wide, ab, ce)));
  if constexpr (kFloats == 4) {
    return all;
  } else {
    const hn::Half<Words> half;
    const auto halves = hn::Max(hn::LowerHalf(half, all), hn::UpperHalf(half, all));
    if constexpr (kFloats == 8) {
      return halves;
    } else {
      const hn::Half<hn::Half<Words>> quarter;
      return hn::Max(hn::LowerHalf(quarter, halves), hn::UpperHalf(quarter, halves));
    }
  }
}

/// Patterns of T in words as fp32 bits.
template <class T>
HWY_INLINE VWord as_fp32(VWord patterns) {
  if constexpr (std::is_same_v<T, float>) {
    return patterns;
  } else if constexpr (std::is_same_v<T, BF16>) {
    return hn::ShiftLeft<16>(patterns);
  } else {
    const auto narrow = hn::DemoteTo(hn::Half<Shorts>(), hn::BitCast(hn::RebindToSigned<Words>(), patterns));
    return hn::BitCast(Words(), widened_f16(narrow));
  }
}

/// The largest magnitudes of kGroup blocks as fp32 bits; above those of Inf where there is a NaN.
template <class T>
HWY_INLINE VWord largest_of_blocks(const T* x) {
  const Words d;
  constexpr std::size_t kFour = 4 * kMx;
  if constexpr (kFloats == 4) {
    return as_fp32<T>(largest_of_four(x));
  } else if constexpr (kFloats == 8) {
    return as_fp32<T>(hn::Combine(d, largest_of_four(x + kFour), largest_of_four(x)));
  } else {
    const hn::Half<Words> half;
    const auto low = hn::Combine(half, largest_of_four(x + kFour), largest_of_four(x));
    const auto high = hn::Combine(half, largest_of_four(x + 3 * kFour), largest_of_four(x + 2 * kFour));
    return as_fp32<T>(hn::Combine(d, high, low));
  }
}

/// encode_e8m0 of what amaxes, none of them NaN, are to the largest code.
template <DType kFormat>
HWY_INLINE VWord scale_bytes(VWord amaxes) {
  const Words d;
  const auto bits =
      hn::BitCast(d, hn::Mul(hn::BitCast(Floats(), amaxes), hn::Set(Floats(), 1.0F / fp8_max(kFormat))));
  const auto above = hn::ShiftRight<23>(hn::Add(bits, hn::Set(d, 0x7FFFFFU)));
  // 0x400000 as a subnormal is 2^-127, which byte 0 stands for.
  return hn::IfThenElseZero(hn::Gt(bits, hn::Set(d, 0x400000U)), hn::Min(above, hn::Set(d, 254U)));
}
/// e8m0_encode_multiplier of each, as bits.
HWY_INLINE VWord multipliers_of(VWord bytes) {
  const Words d;
  return hn::Max(hn::ShiftLeft<23>(hn::Sub(hn::Set(d, 254U), bytes)), hn::Set(d, 0x00400000U));
}

/// Codes of bf16 in its own width: under a power of two only the exponent changes, and dropping bits of the
/// mantissa is integer arithmetic. That leaves out subnormal codes and subnormal elements.
template <DType kFormat>
class ShortCodes {
 public:
  using Traits = Fp8Traits<kFormat>;

  /// Of kBytes elements, all of blocks whose scales are regular(); false when an element does not fit.
  static HWY_INLINE bool make(const BF16* x, const std::uint32_t* scales, std::uint8_t* codes) {
    const auto* bits = reinterpret_cast<const std::uint16_t*>(x);
    const auto first = hn::LoadU(Shorts(), bits);
    const auto second = hn::LoadU(Shorts(), bits + kShorts);
    const auto a = distance(scales[0]);
    const auto b = distance(scales[kShorts / kMx]);
    if (HWY_UNLIKELY(!hn::AllFalse(Shorts(), hn::Or(too_small(first, a), too_small(second, b)))))
      return false;
    hn::StoreU(hn::ConcatEven(Bytes(), hn::BitCast(Bytes(), codes_of(second, b)),
                              hn::BitCast(Bytes(), codes_of(first, a))),
               Bytes(), codes);
    return true;
  }
  /// Scales under which a normal code is that of a normal bf16, and nothing is infinite.
  static HWY_INLINE bool regular(VWord scales) {
    const Words d;
    const auto outside = hn::Or(hn::Gt(scales, hn::Set(d, 253U)),
                                hn::Gt(hn::Set(d, static_cast<std::uint32_t>(Traits::kBias) + 1U), scales));
    return hn::AllFalse(d, outside);
  }

 private:
  static constexpr std::size_t kShorts = 2 * kFloats;
  static constexpr int kDropped = 7 - Traits::kMantissaBits;

  /// From an exponent of bf16 to that of its code, in place.
  static HWY_INLINE std::uint16_t distance(std::uint32_t scale) {
    return static_cast<std::uint16_t>((scale - Traits::kBias) << 7);
  }
  static HWY_INLINE VShort magnitude_of(VShort bits) {
    return hn::And(bits, hn::Set(Shorts(), std::uint16_t{0x7FFF}));
  }
  /// Not zero, and below the smallest normal code.
  static HWY_INLINE auto too_small(VShort bits, std::uint16_t distance) {
    const auto less_one = hn::Sub(magnitude_of(bits), hn::Set(Shorts(), std::uint16_t{1}));
    return hn::Gt(hn::Set(Shorts(), static_cast<std::uint16_t>(distance + 127U)), less_one);
  }
  static HWY_INLINE VShort codes_of(VShort bits, std::uint16_t distance) {
    const Shorts d;
    const auto value = hn::SaturatedSub(magnitude_of(bits), hn::Set(d, distance));
    const auto odd = hn::And(hn::ShiftRight<kDropped>(value), hn::Set(d, std::uint16_t{1}));
    const auto half_less_one = hn::Set(d, static_cast<std::uint16_t>((1U << (kDropped - 1)) - 1U));
    const auto number = hn::ShiftRight<kDropped>(hn::Add(value, hn::Add(odd, half_less_one)));
    return hn::Or(number, hn::And(hn::ShiftRight<8>(bits), hn::Set(d, std::uint16_t{0x80})));
  }
};

/// Makes kBytes codes in a cheaper way; false when they cannot be.
template <DType kFormat, class T>
HWY_INLINE bool make_short([[maybe_unused]] bool regular, [[maybe_unused]] const T* x,
                           [[maybe_unused]] const std::uint32_t* scales,
                           [[maybe_unused]] std::uint8_t* codes) {
  if constexpr (std::is_same_v<T, BF16>) {
    return HWY_LIKELY(regular) && ShortCodes<kFormat>::make(x, scales, codes);
  } else {
    return false;
  }
}

/// kAhead: more blocks follow in memory. They are fetched while codes are made, which takes longest.
template <DType kFormat, bool kAhead, class T>
HWY_INLINE void encode_group(const T* x, std::uint8_t* codes, std::uint8_t* scales) {
  const Words d;
  VWord amaxes = largest_of_blocks(x);
  const bool has_nan = !hn::AllFalse(d, hn::Gt(amaxes, hn::Set(d, kInfinity)));
  if (HWY_UNLIKELY(has_nan)) {
    alignas(64) std::array<std::uint32_t, kGroup> without;
    for (std::size_t block = 0; block < kGroup; ++block) {
      without[block] = kReferenceLoops.of<T>().amax(x + block * kMx, kMx);
    }
    amaxes = hn::Load(d, without.data());
  }
  const auto bytes = scale_bytes<kFormat>(amaxes);
  const hn::Rebind<std::uint8_t, Words> narrow;
  hn::StoreU(hn::DemoteTo(narrow, hn::BitCast(hn::RebindToSigned<Words>(), bytes)), narrow, scales);
  const bool regular = !has_nan && ShortCodes<kFormat>::regular(bytes);
  alignas(64) std::array<std::uint32_t, kGroup> of_blocks;
  alignas(64) std::array<float, kGroup> multipliers;
  hn::Store(bytes, d, of_blocks.data());
  hn::Store(hn::BitCast(Floats(), multipliers_of(bytes)), Floats(), multipliers.data());
  for (std::size_t i = 0; i < kGroup * kMx; i += kBytes) {
    if constexpr (kAhead) prefetch<kBytes * sizeof(T)>(x + i);
    if (make_short<kFormat>(regular, x + i, of_blocks.data() + i / kMx, codes + i)) continue;
    hn::StoreU(encode_bytes<kFormat>([&](std::size_t at) HWY_ATTR {
                 return hn::Mul(load(x + i + at), hn::Set(Floats(), multipliers[(i + at) / kMx]));
               }),
               Bytes(), codes + i);
  }
}

template <DType kFormat, class T>
void encode_mx(const T* x, std::size_t blocks, std::uint8_t* codes, std::uint8_t* scales) {
  std::size_t block = 0;
  for (; block + kGroup <= blocks; block += kGroup) {
    encode_group<kFormat, true>(x + block * kMx, codes + block * kMx, scales + block);
  }
  const std::size_t rest = blocks - block;
  if (rest == 0) return;
  std::array<T, kGroup * kMx> padded{};
  std::array<std::uint8_t, kGroup * kMx> padded_codes;
  std::array<std::uint8_t, kGroup> padded_scales;
  std::copy_n(x + block * kMx, rest * kMx, padded.begin());
  encode_group<kFormat, false>(padded.data(), padded_codes.data(), padded_scales.data());
  std::copy_n(padded_codes.begin(), rest * kMx, codes + block * kMx);
  std::copy_n(padded_scales.begin(), rest, scales + block);
}

void put_mx(Loops& loops) {
  loops.f32.e4m3.encode_mx = encode_mx<DType::kE4M3, float>;
  loops.f32.e5m2.encode_mx = encode_mx<DType::kE5M2, float>;
  loops.bf16.e4m3.encode_mx = encode_mx<DType::kE4M3, BF16>;
  loops.bf16.e5m2.encode_mx = encode_mx<DType::kE5M2, BF16>;
  loops.f16.e4m3.encode_mx = encode_mx<DType::kE4M3, F16>;
  loops.f16.e5m2.encode_mx = encode_mx<DType::kE5M2, F16>;
}

}  // namespace HWY_NAMESPACE
}  // namespace amaxscope::cpu
HWY_AFTER_NAMESPACE();
#endif
