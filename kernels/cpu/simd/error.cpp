// What quantization did to a block of elements.
#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/cpu/simd/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd/error.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/simd/cast_error-inl.hpp"
#include "kernels/cpu/simd/grid-inl.hpp"
#include "kernels/cpu/simd/vectors-inl.hpp"

#if AMAXSCOPE_SIMD
HWY_BEFORE_NAMESPACE();
namespace amaxscope::cpu {
namespace HWY_NAMESPACE {

/// Counts of the lanes in which something was true.
struct Count {
  VWord lanes;
  HWY_INLINE Count() : lanes(hn::Zero(Words())) {}
  template <class Mask>
  HWY_INLINE void add(Mask mask) {
    lanes = hn::Sub(lanes, hn::VecFromMask(Words(), mask));
  }
  HWY_INLINE std::uint32_t total() const { return hn::GetLane(hn::SumOfLanes(Words(), lanes)); }
};

template <DType kFormat>
struct Errors {
  VFloat scale;
  VFloat scale_inv;
  VFloat limit;
  Lanes errors, signals, quantized, products, saturated, flushed, largest;
  Count nan, underflows, overflows, saturations, compared;

  explicit HWY_INLINE Errors(const Scaling& scaling)
      : scale(hn::Set(Floats(), scaling.scale)),
        scale_inv(hn::Set(Floats(), scaling.scale_inv)),
        limit(hn::Set(Floats(), fp8_max_times(scaling.scale_inv))) {}
  static HWY_INLINE float fp8_max_times(float scale_inv) { return Fp8Traits<kFormat>::kGrid.max * scale_inv; }

  /// kFloats elements; the first of them belongs to the lane part * 2 * kDoubles. inside: which count at all.
  template <std::size_t kPart, bool kMasked, class Mask>
  HWY_INLINE void add(VFloat x, const std::uint8_t* codes, Mask inside) {
    const Words d;
    const Floats df;
    const auto value = magnitude(x);
    const auto scaled = hn::Mul(x, scale);
    const auto scaled_value = magnitude(scaled);
    const auto x_is_nan = hn::Gt(value, hn::Set(d, kInfinity));
    // The value of the code and whether that is +-0.
    VFloat decoded;
    if (codes != nullptr) {
      decoded = values_of<kFormat>(codes);
    } else {
      const auto nearest = hn::BitCast(d, Grid<kFormat>::nearest(Grid<kFormat>::clamp(scaled_value)));
      const auto sign = hn::AndNot(hn::Set(d, kMagnitudeMask), hn::BitCast(d, scaled));
      const auto is_nan = hn::Gt(scaled_value, hn::Set(d, kInfinity));
      decoded = hn::BitCast(df, hn::IfThenElse(is_nan, hn::Set(d, 0x7FC00000U), hn::Or(nearest, sign)));
    }
    const auto zero_code = hn::Eq(magnitude(decoded), hn::Zero(d));
    const auto q = hn::Mul(decoded, scale_inv);
    auto valid = hn::And(hn::Gt(hn::Set(d, kInfinity), value), hn::Gt(hn::Set(d, kInfinity), magnitude(q)));
    auto clips = hn::Not(hn::Gt(hn::Set(d, Fp8Traits<kFormat>::kSaturatesFrom), scaled_value));
    auto is_flushed = hn::And(zero_code, hn::AndNot(x_is_nan, hn::Gt(value, hn::Zero(d))));
    auto over = hn::RebindMask(d, hn::Gt(hn::BitCast(df, value), limit));
    auto is_nan = x_is_nan;
    if constexpr (kMasked) {
      valid = hn::And(valid, inside);
      clips = hn::And(clips, inside);
      is_flushed = hn::And(is_flushed, inside);
      over = hn::And(over, inside);
      is_nan = hn::And(is_nan, inside);
    }
    nan.add(is_nan);
    overflows.add(over);
    compared.add(valid);
    const auto original = hn::IfThenElseZero(hn::RebindMask(df, valid), x);
    const auto restored = hn::IfThenElseZero(hn::RebindMask(df, valid), q);
    add_doubles<2 * kPart>(hn::LowerHalf(hn::Half<Floats>(), original),
                           hn::LowerHalf(hn::Half<Floats>(), restored));
    add_doubles<2 * kPart + 1>(hn::UpperHalf(hn::Half<Floats>(), original),
                               hn::UpperHalf(hn::Half<Floats>(), restored));
    // Rare: nothing is added to the other sums otherwise, as adding 0 changes none of them.
    const auto rare = hn::Or(clips, is_flushed);
    if (HWY_UNLIKELY(!hn::AllFalse(d, rare))) {
      underflows.add(is_flushed);
      saturations.add(hn::AndNot(x_is_nan, clips));
      add_squares<2 * kPart>(saturated, hn::IfThenElseZero(hn::RebindMask(df, clips), original));
      add_squares<2 * kPart>(flushed, hn::IfThenElseZero(hn::RebindMask(df, is_flushed), original));
    }
  }

  void add_to(QuantizationError& sums) const {
    sums.nan += nan.total();
    sums.underflows += underflows.total();
    sums.overflows += overflows.total();
    sums.saturated += saturations.total();
    sums.compared += compared.total();
    sums.error_squares += errors.total<float>();
    sums.signal_squares += signals.total<float>();
    sums.quantized_squares += quantized.total<float>();
    sums.product += products.total<float>();
    sums.saturated_squares += saturated.total<float>();
    sums.flushed_squares += flushed.total<float>();
    const auto errors_seen = largest.in_order<float>();
    sums.max_error = std::max(sums.max_error,
                              static_cast<float>(*std::max_element(errors_seen.begin(), errors_seen.end())));
  }

 private:
  /// Products of two fp32 are exact in double, so fusing them with the sum changes nothing; the square of an
  /// error is not, and is rounded as the reference rounds it.
  template <std::size_t kPart, class Half>
  HWY_INLINE void add_doubles(Half original, Half restored) {
    const Doubles d;
    const auto x = hn::PromoteTo(d, original);
    const auto q = hn::PromoteTo(d, restored);
    const auto error = hn::Sub(x, q);
    errors.parts[kPart] = hn::Add(errors.parts[kPart], hn::Mul(error, error));
    signals.parts[kPart] = hn::MulAdd(x, x, signals.parts[kPart]);
    quantized.parts[kPart] = hn::MulAdd(q, q, quantized.parts[kPart]);
    products.parts[kPart] = hn::MulAdd(x, q, products.parts[kPart]);
    largest.parts[kPart] = hn::Max(largest.parts[kPart], hn::Abs(error));
  }
  template <std::size_t kPart>
  HWY_INLINE void add_squares(Lanes& sum, VFloat x) {
    const Doubles d;
    const auto low = hn::PromoteTo(d, hn::LowerHalf(hn::Half<Floats>(), x));
    const auto high = hn::PromoteTo(d, hn::UpperHalf(hn::Half<Floats>(), x));
    sum.parts[kPart] = hn::MulAdd(low, low, sum.parts[kPart]);
    sum.parts[kPart + 1] = hn::MulAdd(high, high, sum.parts[kPart + 1]);
  }
};

/// Sixteen elements: one to a lane.
template <bool kMasked, DType kFormat, class T>
HWY_INLINE void add_sixteen(Errors<kFormat>& errors, const T* x, const std::uint8_t* codes,
                            std::size_t count) {
  const Words d;
  const auto inside = [&](std::size_t first) { return hn::FirstN(d, count > first ? count - first : 0); };
  const auto at = [&](std::size_t first) { return codes == nullptr ? nullptr : codes + first; };
  errors.template add<0, kMasked>(load(x), codes, inside(0));
  if constexpr (kFloats < 16)
    errors.template add<1, kMasked>(load(x + kFloats), at(kFloats), inside(kFloats));
  if constexpr (kFloats < 8) {
    errors.template add<2, kMasked>(load(x + 2 * kFloats), at(2 * kFloats), inside(2 * kFloats));
    errors.template add<3, kMasked>(load(x + 3 * kFloats), at(3 * kFloats), inside(3 * kFloats));
  }
}

template <bool kGiven, DType kFormat, class T>
HWY_INLINE void add_block(const T* x, const std::uint8_t* codes, std::size_t count, const Scaling& scaling,
                          QuantizationError& sums) {
  Errors<kFormat> errors(scaling);
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    prefetch<kLanes * sizeof(T)>(x + i);
    add_sixteen<false>(errors, x + i, kGiven ? codes + i : nullptr, kLanes);
  }
  if (i < count) {
    std::array<T, kLanes> rest{};
    std::array<std::uint8_t, kLanes> rest_codes{};
    std::copy_n(x + i, count - i, rest.begin());
    if constexpr (kGiven) std::copy_n(codes + i, count - i, rest_codes.begin());
    add_sixteen<true>(errors, rest.data(), kGiven ? rest_codes.data() : nullptr, count - i);
  }
  sums.numel += count;
  errors.add_to(sums);
}

/// Whether the codes are those that a cast makes now, as they mostly are. Making them once more takes less
/// time than looking at codes that may be any.
template <DType kFormat, class T>
bool is_cast(const T* x, const std::uint8_t* codes, std::size_t count, float scale) {
  std::array<std::uint8_t, kBlock> made;
  loops().of<T>().format(kFormat).encode(x, count, scale, made.data(), Store::kCached);
  return std::memcmp(made.data(), codes, count) == 0;
}

template <DType kFormat, class T>
void add_error(const T* x, const std::uint8_t* codes, std::size_t count, const Scaling& scaling,
               QuantizationError& sums) {
  const CastError<kFormat, T> cast(scaling);
  if (cast.fits() && (codes == nullptr || is_cast<kFormat>(x, codes, count, scaling.scale)) &&
      cast.add_block(x, count, sums)) {
    return;
  }
  if (codes == nullptr) {
    add_block<false, kFormat>(x, codes, count, scaling, sums);
  } else {
    add_block<true, kFormat>(x, codes, count, scaling, sums);
  }
}

void put_error(Loops& loops) {
  loops.f32.e4m3.add_error = add_error<DType::kE4M3, float>;
  loops.f32.e5m2.add_error = add_error<DType::kE5M2, float>;
  loops.f16.e4m3.add_error = add_error<DType::kE4M3, F16>;
  loops.f16.e5m2.add_error = add_error<DType::kE5M2, F16>;
  loops.bf16.e4m3.add_error = add_error<DType::kE4M3, BF16>;
  loops.bf16.e5m2.add_error = add_error<DType::kE5M2, BF16>;
}

}  // namespace HWY_NAMESPACE
}  // namespace amaxscope::cpu
HWY_AFTER_NAMESPACE();
#endif
