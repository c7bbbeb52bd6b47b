// MXFP8: blocks of 32 elements under a power of two each.
#include <algorithm>
#include <array>
#include <bit>

#include "kernels/cpu/simd/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd/mx.cpp"
#include <hwy/foreach_target.h>

#include "kernels/codec/e8m0.hpp"
#include "kernels/codec/scale.hpp"
#include "kernels/cpu/simd/encode-inl.hpp"
#include "kernels/cpu/simd/extremes-inl.hpp"

#if AMAXSCOPE_SIMD
HWY_BEFORE_NAMESPACE();
namespace amaxscope::cpu {
namespace HWY_NAMESPACE {

constexpr std::size_t kMx = 32;
constexpr std::size_t kGroup = 16;  // blocks whose scales are made together

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

/// The largest words of four vectors, in their order.
HWY_INLINE void store_maxima(VWord a, VWord b, VWord c, VWord e, std::uint32_t* out) {
  const Words d;
  const hn::Repartition<std::uint64_t, Words> wide;
  const auto ab = hn::BitCast(wide, hn::Max(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b)));
  const auto ce = hn::BitCast(wide, hn::Max(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e)));
  const auto all = hn::Max(hn::BitCast(d, hn::InterleaveLower(wide, ab, ce)),
                           hn::BitCast(d, hn::InterleaveUpper(wide, ab, ce)));
  const hn::Half<Words> half;
  if constexpr (kFloats == 4) {
    hn::StoreU(all, d, out);
  } else {
    const auto halves = hn::Max(hn::LowerHalf(half, all), hn::UpperHalf(half, all));
    if constexpr (kFloats == 8) {
      hn::StoreU(halves, half, out);
    } else {
      const hn::Half<hn::Half<Words>> quarter;
      hn::StoreU(hn::Max(hn::LowerHalf(quarter, halves), hn::UpperHalf(quarter, halves)), quarter, out);
    }
  }
}

/// Scales of kGroup blocks, and what the elements of each are multiplied by.
struct Scales {
  alignas(64) std::array<std::uint32_t, kGroup> bytes;
  alignas(64) std::array<float, kGroup> multipliers;
};

/// From amaxes as fp32 bits, none of them NaN: encode_e8m0 and e8m0_encode_multiplier.
template <DType kFormat>
HWY_INLINE void make_scales(const std::array<std::uint32_t, kGroup>& amaxes, Scales& scales) {
  const Words d;
  for (std::size_t i = 0; i < kGroup; i += kFloats) {
    const auto amax = hn::BitCast(Floats(), hn::Load(d, amaxes.data() + i));
    const auto bits = hn::BitCast(d, hn::Mul(amax, hn::Set(Floats(), 1.0F / fp8_max(kFormat))));
    const auto above = hn::ShiftRight<23>(hn::Add(bits, hn::Set(d, 0x7FFFFFU)));
    // 0x400000 as a subnormal is 2^-127, which byte 0 stands for.
    const auto byte =
        hn::IfThenElseZero(hn::Gt(bits, hn::Set(d, 0x400000U)), hn::Min(above, hn::Set(d, 254U)));
    hn::Store(byte, d, scales.bytes.data() + i);
    const auto power = hn::ShiftLeft<23>(hn::Sub(hn::Set(d, 254U), byte));
    hn::Store(hn::BitCast(Floats(), hn::Max(power, hn::Set(d, 0x00400000U))), Floats(),
              scales.multipliers.data() + i);
  }
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
  static HWY_INLINE bool regular(std::uint32_t scale) { return scale > Traits::kBias && scale < 254; }

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

template <DType kFormat, class T>
HWY_INLINE void encode_group(const T* x, std::uint8_t* codes, std::uint8_t* scales) {
  alignas(64) std::array<std::uint32_t, kGroup> amaxes;
  for (std::size_t block = 0; block < kGroup; block += 4) {
    const T* four = x + block * kMx;
    prefetch<4 * kMx * sizeof(T)>(four);
    store_maxima(maxima(four), maxima(four + kMx), maxima(four + 2 * kMx), maxima(four + 3 * kMx),
                 amaxes.data() + block);
  }
  bool regular = true;
  for (std::size_t block = 0; block < kGroup; ++block) {
    std::uint32_t& amax = amaxes[block];
    amax = PatternOf<T>::as_fp32(static_cast<typename PatternOf<T>::Bits>(amax));
    if (HWY_UNLIKELY(amax > kInfinity)) {
      amax = kReferenceLoops.of<T>().amax(x + block * kMx, kMx);
      regular = false;
    }
  }
  Scales made;
  make_scales<kFormat>(amaxes, made);
  for (std::size_t block = 0; block < kGroup; ++block) {
    scales[block] = static_cast<std::uint8_t>(made.bytes[block]);
    regular = regular && ShortCodes<kFormat>::regular(made.bytes[block]);
  }
  for (std::size_t i = 0; i < kGroup * kMx; i += kBytes) {
    if (make_short<kFormat>(regular, x + i, made.bytes.data() + i / kMx, codes + i)) continue;
    hn::StoreU(encode_bytes<kFormat>([&](std::size_t at) HWY_ATTR {
                 return hn::Mul(load(x + i + at), hn::Set(Floats(), made.multipliers[(i + at) / kMx]));
               }),
               Bytes(), codes + i);
  }
}

template <DType kFormat, class T>
void encode_mx(const T* x, std::size_t blocks, std::uint8_t* codes, std::uint8_t* scales) {
  std::size_t block = 0;
  for (; block + kGroup <= blocks; block += kGroup) {
    encode_group<kFormat>(x + block * kMx, codes + block * kMx, scales + block);
  }
  const std::size_t rest = blocks - block;
  if (rest == 0) return;
  std::array<T, kGroup * kMx> padded{};
  std::array<std::uint8_t, kGroup * kMx> padded_codes;
  std::array<std::uint8_t, kGroup> padded_scales;
  std::copy_n(x + block * kMx, rest * kMx, padded.begin());
  encode_group<kFormat>(padded.data(), padded_codes.data(), padded_scales.data());
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
