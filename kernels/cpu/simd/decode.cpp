// FP8 codes to values.
#include <limits>

#include "kernels/cpu/simd/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd/decode.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/simd/encode-inl.hpp"

#if AMAXSCOPE_SIMD
HWY_BEFORE_NAMESPACE();
namespace amaxscope::cpu {
namespace HWY_NAMESPACE {

HWY_INLINE void put_values(VFloat value, float* x) { hn::StoreU(value, Floats(), x); }
HWY_INLINE void put_values(VFloat value, BF16* x) {
  const hn::RebindToSigned<Words> di;
  const hn::Rebind<std::uint16_t, Words> half;
  hn::StoreU(hn::DemoteTo(half, hn::BitCast(di, bf16_of(value))), half, reinterpret_cast<std::uint16_t*>(x));
}
HWY_INLINE void put_values(VFloat value, F16* x) {
  const hn::Rebind<hwy::float16_t, Floats> half;
  const hn::Rebind<std::uint16_t, Floats> bits;
  // The conversion keeps the sign of a NaN and some of its payload.
  const auto is_nan = hn::Gt(magnitude(value), hn::Set(Words(), kInfinity));
  auto result = hn::BitCast(bits, hn::DemoteTo(half, value));
  if (HWY_UNLIKELY(!hn::AllFalse(Words(), is_nan))) {
    const hn::RebindToSigned<Words> wide;
    const auto chosen = hn::IfThenElse(is_nan, hn::Set(Words(), 0x7FFFU), hn::PromoteTo(Words(), result));
    result = hn::DemoteTo(bits, hn::BitCast(wide, chosen));
  }
  hn::StoreU(result, bits, reinterpret_cast<std::uint16_t*>(x));
}

/// Codes read as fp16: E5M2 is its upper half, and E4M3 has its mantissa one place to the left of it, with a
/// bias that is smaller by 8. All of this is exact, and so is moving 2^8 into the factor unless that
/// overflows.
template <DType kFormat>
struct AsHalf {
  static constexpr bool kE4M3 = kFormat == DType::kE4M3;

  /// Of the values: what they are multiplied by instead of scale_inv; not finite when there is no such
  /// factor.
  static HWY_INLINE float factor(float scale_inv) { return kE4M3 ? scale_inv * 256.0F : scale_inv; }
  /// kFloats values, E4M3 divided by 2^8; no code is the NaN of E4M3.
  static HWY_INLINE VFloat values(const std::uint8_t* codes) {
    const hn::Rebind<hwy::float16_t, Floats> d;
    if constexpr (kE4M3) {
      // Widened with its sign, so that a shift brings the sign to its place and one copy of it has to go.
      const hn::Rebind<std::int16_t, Floats> wide;
      const auto code =
          hn::LoadU(hn::Rebind<std::int8_t, Floats>(), reinterpret_cast<const std::int8_t*>(codes));
      const auto mask = hn::Set(wide, static_cast<std::int16_t>(0xBFFF));
      return hn::PromoteTo(Floats(),
                           hn::BitCast(d, hn::And(hn::ShiftLeft<7>(hn::PromoteTo(wide, code)), mask)));
    } else {
      const hn::Rebind<std::uint16_t, Floats> wide;
      const auto code = hn::LoadU(hn::Rebind<std::uint8_t, Floats>(), codes);
      return hn::PromoteTo(Floats(), hn::BitCast(d, hn::ShiftLeft<8>(hn::PromoteTo(wide, code))));
    }
  }
  /// Whether kBytes codes can be read so.
  static HWY_INLINE bool fit(const std::uint8_t* codes) {
    if constexpr (!kE4M3) return true;
    const auto number = hn::And(hn::LoadU(Bytes(), codes), hn::Set(Bytes(), std::uint8_t{0x7F}));
    return hn::AllFalse(Bytes(), hn::Eq(number, hn::Set(Bytes(), std::uint8_t{0x7F})));
  }
};

/// kBytes values times the scale: action(kFloats of them, index of the first).
template <DType kFormat, class Action>
HWY_INLINE void over_values(const std::uint8_t* codes, bool as_half, float scale_inv, Action&& action) {
  if (HWY_LIKELY(as_half && AsHalf<kFormat>::fit(codes))) {
    const auto s = hn::Set(Floats(), AsHalf<kFormat>::factor(scale_inv));
    for (std::size_t i = 0; i < kBytes; i += kFloats) {
      action(hn::Mul(AsHalf<kFormat>::values(codes + i), s), i);
    }
  } else {
    const auto s = hn::Set(Floats(), scale_inv);
    for (std::size_t i = 0; i < kBytes; i += kFloats) {
      action(hn::Mul(values_of<kFormat>(codes + i), s), i);
    }
  }
}

template <DType kFormat, class T>
void decode(const std::uint8_t* codes, std::size_t count, float scale_inv, T* x, Store store) {
  const float factor = AsHalf<kFormat>::factor(scale_inv);
  const bool as_half =
      factor <= std::numeric_limits<float>::max() && factor >= -std::numeric_limits<float>::max();
  std::size_t i = 0;
  if constexpr (std::is_same_v<T, float>) {
    const std::size_t head = to_alignment(x) / sizeof(float);
    if (store == Store::kStreamed && head < count && to_alignment(x) % sizeof(float) == 0) {
      kReferenceLoops.of<T>().format(kFormat).decode(codes, head, scale_inv, x, store);
      for (i = head; i + kBytes <= count; i += kBytes) {
        prefetch<kBytes>(codes + i);
        over_values<kFormat>(codes + i, as_half, scale_inv, [&](VFloat value, std::size_t at) HWY_ATTR {
          hn::Stream(value, Floats(), x + i + at);
        });
      }
      hwy::FlushStream();
    }
  }
  for (; i + kBytes <= count; i += kBytes) {
    prefetch<kBytes>(codes + i);
    over_values<kFormat>(codes + i, as_half, scale_inv,
                         [&](VFloat value, std::size_t at) HWY_ATTR { put_values(value, x + i + at); });
  }
  const auto s = hn::Set(Floats(), scale_inv);
  for (; i + kFloats <= count; i += kFloats) put_values(hn::Mul(values_of<kFormat>(codes + i), s), x + i);
  kReferenceLoops.of<T>().format(kFormat).decode(codes + i, count - i, scale_inv, x + i, store);
}

void put_decode(Loops& loops) {
  loops.f32.e4m3.decode = decode<DType::kE4M3, float>;
  loops.f32.e5m2.decode = decode<DType::kE5M2, float>;
  loops.bf16.e4m3.decode = decode<DType::kE4M3, BF16>;
  loops.bf16.e5m2.decode = decode<DType::kE5M2, BF16>;
  loops.f16.e4m3.decode = decode<DType::kE4M3, F16>;
  loops.f16.e5m2.decode = decode<DType::kE5M2, F16>;
}

}  // namespace HWY_NAMESPACE
}  // namespace amaxscope::cpu
HWY_AFTER_NAMESPACE();
#endif
