// Rounding to the grid of an FP8 format, once for each target. Included as vectors-inl.hpp.
#if defined(AMAXSCOPE_GRID_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef AMAXSCOPE_GRID_INL_HPP
#undef AMAXSCOPE_GRID_INL_HPP
#else
#define AMAXSCOPE_GRID_INL_HPP
#endif

#include "kernels/codec/fp8.hpp"
#include "kernels/cpu/simd/vectors-inl.hpp"

#if AMAXSCOPE_SIMD
HWY_BEFORE_NAMESPACE();
namespace amaxscope::cpu {
namespace HWY_NAMESPACE {

/// Adding a power of two whose fp32 spacing is the distance of the codes around a magnitude makes the adder
/// round to the grid, to nearest, ties to even. Its exponent field is that of the magnitude, at least that of
/// the smallest normal code, plus the mantissa bits that are dropped.
template <DType kFormat>
struct Grid {
  using Traits = Fp8Traits<kFormat>;
  static constexpr int kDropped = 23 - Traits::kMantissaBits;
  static constexpr std::uint32_t kLowestExponent = static_cast<std::uint32_t>(128 - Traits::kBias) << 23;
  static constexpr std::uint32_t kRaise = static_cast<std::uint32_t>(kDropped) << 23;

  /// Magnitude bits that do not exceed the largest code's; NaN and Inf become it.
  static HWY_INLINE VWord clamp(VWord magnitude_bits) {
    return hn::Min(magnitude_bits, hn::Set(Words(), Traits::kMaxMagnitude));
  }
  static HWY_INLINE VWord exponent(VWord clamped) {
    return hn::Max(hn::And(clamped, hn::Set(Words(), kInfinity)), hn::Set(Words(), kLowestExponent));
  }
  /// The value of the nearest code.
  static HWY_INLINE VFloat nearest(VWord clamped) {
    // The aligner is an exact multiple of the power of two, so the fused sum rounds once, as the sum would.
    const auto power = hn::BitCast(Floats(), exponent(clamped));
    const auto raise = hn::Set(Floats(), static_cast<float>(1U << kDropped));
    return hn::NegMulAdd(power, raise, hn::MulAdd(power, raise, hn::BitCast(Floats(), clamped)));
  }
  /// The nearest code itself in the low byte (with an unspecified rest): the sum's last bits count grid steps
  /// from the exponent's first code, and a few of them in the aligner make the count start at the right code.
  static HWY_INLINE VWord code(VWord clamped) {
    constexpr std::uint32_t kFirst = kLowestExponent >> kDropped;
    constexpr std::uint32_t kStart = (0U - kFirst) & 0xFFU;
    static_assert(kStart % 2 == 0, "an odd start would turn ties to odd codes");
    const auto e = exponent(clamped);
    const auto aligner = hn::BitCast(Floats(), hn::Add(e, hn::Set(Words(), kRaise + kStart)));
    const auto sum = hn::Add(hn::BitCast(Floats(), clamped), aligner);
    return hn::Add(hn::ShiftRight<kDropped>(e), hn::BitCast(Words(), sum));
  }
};

/// The codes of kFloats scaled values, one in each word.
template <DType kFormat>
HWY_INLINE VWord codes_of(VFloat scaled) {
  const Words d;
  const auto bits = hn::BitCast(d, scaled);
  const auto value = hn::And(bits, hn::Set(d, kMagnitudeMask));
  const auto code = hn::And(Grid<kFormat>::code(Grid<kFormat>::clamp(value)), hn::Set(d, 0x7FU));
  const auto sign = hn::And(hn::ShiftRight<24>(bits), hn::Set(d, 0x80U));
  return hn::IfThenElse(hn::Gt(value, hn::Set(d, kInfinity)), hn::Set(d, std::uint32_t{kFp8NaN}),
                        hn::Or(code, sign));
}

/// decode_fp8 of kFloats codes.
template <DType kFormat>
HWY_INLINE VFloat values_of(const std::uint8_t* codes) {
  using Traits = Fp8Traits<kFormat>;
  const Words d;
  const Floats df;
  const hn::Rebind<std::uint8_t, Words> bytes;
  constexpr int kShift = 23 - Traits::kMantissaBits;
  constexpr std::uint32_t kRebias = static_cast<std::uint32_t>(127 - Traits::kBias) << 23;
  const auto code = hn::PromoteTo(d, hn::LoadU(bytes, codes));
  const auto number = hn::And(code, hn::Set(d, 0x7FU));
  const auto sign = hn::ShiftLeft<24>(hn::And(code, hn::Set(d, 0x80U)));
  const auto normal = hn::Add(hn::ShiftLeft<kShift>(number), hn::Set(d, kRebias));
  // A subnormal code read as one of the first normal binade is too large by exactly its first value.
  constexpr std::uint32_t kFirstNormal = kRebias + (1U << 23);
  const auto subnormal =
      hn::Sub(hn::BitCast(df, hn::Add(hn::ShiftLeft<kShift>(number), hn::Set(d, kFirstNormal))),
              hn::BitCast(df, hn::Set(d, kFirstNormal)));
  const auto is_subnormal = hn::Gt(hn::Set(d, 1U << Traits::kMantissaBits), number);
  auto result = hn::IfThenElse(is_subnormal, hn::BitCast(d, subnormal), normal);
  if constexpr (kFormat == DType::kE4M3) {
    result = hn::IfThenElse(hn::Eq(number, hn::Set(d, 0x7FU)), hn::Set(d, 0x7FC00000U), result);
  } else {
    // Inf and NaN: the mantissa bits under the largest exponent.
    const auto special =
        hn::Or(hn::Set(d, kInfinity), hn::ShiftLeft<kShift>(hn::And(number, hn::Set(d, 3U))));
    result = hn::IfThenElse(hn::Gt(number, hn::Set(d, 0x7BU)), special, result);
  }
  return hn::BitCast(df, hn::Or(result, sign));
}

}  // namespace HWY_NAMESPACE
}  // namespace amaxscope::cpu
HWY_AFTER_NAMESPACE();
#endif

#endif
