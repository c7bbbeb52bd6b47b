// What a cast to FP8 codes does to a block of finite elements, without making the codes. Included as
// vectors-inl.hpp.
#if defined(AMAXSCOPE_CAST_ERROR_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef AMAXSCOPE_CAST_ERROR_INL_HPP
#undef AMAXSCOPE_CAST_ERROR_INL_HPP
#else
#define AMAXSCOPE_CAST_ERROR_INL_HPP
#endif

#include "kernels/codec/scale.hpp"
#include "kernels/cpu/simd/extremes-inl.hpp"
#include "kernels/cpu/simd/grid-inl.hpp"

#if AMAXSCOPE_SIMD
HWY_BEFORE_NAMESPACE();
namespace amaxscope::cpu {
namespace HWY_NAMESPACE {

/// Signs do not matter: a cast keeps them, so that errors and products are those of the magnitudes. What is
/// rare (elements that saturate, overflow or flush) is told from the largest and the least magnitude, since
/// scaling and rounding keep the order, and only then looked for one by one in a second reading of the block,
/// which is in L1. Every sum has the terms of the reference in its order: leaving out a 0 changes no bit.
template <DType kFormat, class T>
class CastError {
 public:
  using Traits = Fp8Traits<kFormat>;

  explicit HWY_INLINE CastError(const Scaling& scaling)
      : scaling_(scaling), exact_(exact_differences(scaling)) {}

  /// Whether the scale lets finite elements decode to finite values.
  HWY_INLINE bool fits() const {
    return scaling_.scale > 0 && scaling_.scale <= std::numeric_limits<float>::max() &&
           scaling_.scale_inv >= 0 && limit() <= std::numeric_limits<float>::max();
  }

  /// Adds a block; false, and nothing is added, when an element is not finite.
  HWY_INLINE bool add_block(const T* x, std::size_t count, QuantizationError& sums) const {
    Common common;
    Magnitudes<T> seen;
    if (exact_) {
      add_all<true>(x, count, seen, common);
    } else {
      add_all<false>(x, count, seen, common);
    }
    if (seen.largest() >= kInfinity) return false;
    if (HWY_UNLIKELY(exact_ && saturates(seen))) {
      common = Common();
      add_all<false>(x, count, seen, common);
    }
    sums.numel += count;
    sums.compared += count;
    sums.error_squares += common.errors.template total<T>();
    sums.signal_squares += common.signals.template total<T>();
    sums.quantized_squares += common.quantized.template total<T>();
    sums.product += common.products.template total<T>();
    sums.max_error = std::max(sums.max_error, hn::GetLane(hn::MaxOfLanes(Floats(), common.largest)));
    if (has_rare(seen)) add_rare(x, count, sums);
    return true;
  }

 private:
  struct Common {
    Lanes errors, signals, quantized, products;
    VFloat largest;
    HWY_INLINE Common() : largest(hn::Zero(Floats())) {}  // an implicit one is not of the target
  };

  /// Half of the smallest code: what is not above rounds to zero, the tie too.
  static constexpr float kHalfLeast =
      std::bit_cast<float>(static_cast<std::uint32_t>(127 - Traits::kBias - Traits::kMantissaBits) << 23);

  /// Whether x - q is an fp32 for every x that does not saturate, q being the value of its code. It is where
  /// q is 0 or between x / 2 and 2 x (Sterbenz). Rounding to a code keeps within these but for the smallest
  /// code, which an x a few ulps below half of its value may get: none of these, under any of the 2^23
  /// mantissas of a scale, has a difference that is no fp32.
  static HWY_INLINE bool exact_differences(const Scaling& scaling) {
    return scaling.scale_inv == scale_inverse(scaling.scale) && scaling.scale > 0x1p-100F &&
           scaling.scale < 0x1p100F;
  }

  HWY_INLINE float limit() const { return Traits::kGrid.max * scaling_.scale_inv; }

  /// Whole steps where they lie, the rest filled up with zeros: they add 0 to every sum.
  template <class Action>
  static HWY_INLINE void over_block(const T* x, std::size_t count, Action&& action) {
    std::size_t i = 0;
    for (; i + kStep<T> <= count; i += kStep<T>) {
      prefetch<kStep<T> * sizeof(T)>(x + i);
      over_step(x + i, action);
    }
    if (i == count) return;
    std::array<T, kStep<T>> rest{};
    std::copy_n(x + i, count - i, rest.begin());
    over_step(rest.data(), action);
  }

  static HWY_INLINE VFloat nearest(VFloat scaled) {
    return Grid<kFormat>::nearest(Grid<kFormat>::clamp(hn::BitCast(Words(), scaled)));
  }

  /// kExact: x - q are fp32, and nothing that counts saturates.
  template <bool kExact>
  HWY_INLINE void add_all(const T* x, std::size_t count, Magnitudes<T>& seen, Common& to) const {
    over_block(x, count, [&](auto patterns, std::size_t vector) HWY_ATTR {
      over_floats<T>(seen.add(patterns), vector,
                     [&](VFloat value, std::size_t low, std::size_t high)
                         HWY_ATTR { add<kExact>(value, low, high, to); });
    });
  }

  /// The largest error may be looked for in fp32: two fp32 that lie so far apart that their difference is not
  /// exact in double differ by the larger one.
  template <bool kExact>
  HWY_INLINE void add(VFloat value, std::size_t low, std::size_t high, Common& to) const {
    const auto scaled = hn::BitCast(Words(), hn::Mul(value, hn::Set(Floats(), scaling_.scale)));
    const auto rounded = Grid<kFormat>::nearest(kExact ? scaled : Grid<kFormat>::clamp(scaled));
    const auto q = hn::Mul(rounded, hn::Set(Floats(), scaling_.scale_inv));
    const auto error = hn::Sub(value, q);
    to.largest = hn::Max(to.largest, hn::Abs(error));
    if constexpr (kExact) {
      add_exact(low_doubles(value), low_doubles(error), low, to);
      add_exact(high_doubles(value), high_doubles(error), high, to);
    } else {
      add_doubles(low_doubles(value), low_doubles(q), low, to);
      add_doubles(high_doubles(value), high_doubles(q), high, to);
    }
  }
  /// Products of two fp32 are exact in double, so fusing them with the sum changes nothing; the square of an
  /// error that is no fp32 is not, and is rounded as the reference rounds it.
  static HWY_INLINE void add_doubles(VDouble x, VDouble q, std::size_t part, Common& to) {
    const auto error = hn::Sub(x, q);
    to.errors.parts[part] = hn::Add(to.errors.parts[part], hn::Mul(error, error));
    add_products(x, q, part, to);
  }
  static HWY_INLINE void add_exact(VDouble x, VDouble error, std::size_t part, Common& to) {
    to.errors.parts[part] = hn::MulAdd(error, error, to.errors.parts[part]);
    add_products(x, hn::Sub(x, error), part, to);
  }
  static HWY_INLINE void add_products(VDouble x, VDouble q, std::size_t part, Common& to) {
    to.signals.parts[part] = hn::MulAdd(x, x, to.signals.parts[part]);
    to.quantized.parts[part] = hn::MulAdd(q, q, to.quantized.parts[part]);
    to.products.parts[part] = hn::MulAdd(x, q, to.products.parts[part]);
  }

  HWY_INLINE bool saturates(const Magnitudes<T>& seen) const {
    return std::bit_cast<std::uint32_t>(std::bit_cast<float>(seen.largest()) * scaling_.scale) >=
           Traits::kSaturatesFrom;
  }
  HWY_INLINE bool has_rare(const Magnitudes<T>& seen) const {
    const auto amax = std::bit_cast<float>(seen.largest());
    const std::uint32_t least = seen.least();
    return amax > limit() || saturates(seen) ||
           (least < kInfinity && std::bit_cast<float>(least) * scaling_.scale <= kHalfLeast);
  }

  void add_rare(const T* x, std::size_t count, QuantizationError& sums) const {
    const Words d;
    const Floats df;
    Lanes saturated;
    Lanes flushed;
    VWord saturations = hn::Zero(d);
    VWord underflows = saturations;
    VWord overflows = saturations;
    const auto counted = [&](VWord& count_of, auto mask) HWY_ATTR {
      count_of = hn::Sub(count_of, hn::VecFromMask(d, hn::RebindMask(d, mask)));
    };
    const auto add_squares = [&](Lanes& sum, VFloat value, std::size_t low, std::size_t high) HWY_ATTR {
      const auto first = low_doubles(value);
      sum.parts[low] = hn::MulAdd(first, first, sum.parts[low]);
      const auto second = high_doubles(value);
      sum.parts[high] = hn::MulAdd(second, second, sum.parts[high]);
    };
    over_block(x, count, [&](auto patterns, std::size_t vector) HWY_ATTR {
      using Bits = typename PatternOf<T>::Bits;
      const auto mask = hn::Set(hn::ScalableTag<Bits>(), Magnitudes<T>::kMask);
      over_floats<T>(
          hn::And(patterns, mask), vector, [&](VFloat value, std::size_t low, std::size_t high) HWY_ATTR {
            const auto scaled = hn::Mul(value, hn::Set(df, scaling_.scale));
            const auto clips = hn::Ge(scaled, hn::Set(df, std::bit_cast<float>(Traits::kSaturatesFrom)));
            const auto is_flushed =
                hn::And(hn::Eq(nearest(scaled), hn::Zero(df)), hn::Gt(value, hn::Zero(df)));
            counted(overflows, hn::Gt(value, hn::Set(df, limit())));
            counted(saturations, clips);
            counted(underflows, is_flushed);
            add_squares(saturated, hn::IfThenElseZero(clips, value), low, high);
            add_squares(flushed, hn::IfThenElseZero(is_flushed, value), low, high);
          });
    });
    sums.overflows += hn::GetLane(hn::SumOfLanes(d, overflows));
    sums.saturated += hn::GetLane(hn::SumOfLanes(d, saturations));
    sums.underflows += hn::GetLane(hn::SumOfLanes(d, underflows));
    sums.saturated_squares += saturated.template total<T>();
    sums.flushed_squares += flushed.template total<T>();
  }

  Scaling scaling_;
  bool exact_;
};

}  // namespace HWY_NAMESPACE
}  // namespace amaxscope::cpu
HWY_AFTER_NAMESPACE();
#endif

#endif
