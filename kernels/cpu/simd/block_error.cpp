// Errors of block-scaled codes.
#include <algorithm>
#include <array>

#include "kernels/cpu/simd/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd/block_error.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/block_error_loops.hpp"
#include "kernels/cpu/simd/vectors-inl.hpp"

#if AMAXSCOPE_SIMD
HWY_BEFORE_NAMESPACE();
namespace amaxscope::cpu {
namespace HWY_NAMESPACE {

/// The sums of kFloats lanes, the first of which is `lane`, while they are in registers.
struct HeldSums {
  VDouble low, high;
  HWY_INLINE HeldSums(const LaneErrors::Sums& sums, std::size_t lane)
      : low(hn::Load(Doubles(), sums.data() + lane)),
        high(hn::Load(Doubles(), sums.data() + lane + kDoubles)) {}
  HWY_INLINE void put(LaneErrors::Sums& sums, std::size_t lane) const {
    hn::Store(low, Doubles(), sums.data() + lane);
    hn::Store(high, Doubles(), sums.data() + lane + kDoubles);
  }
  /// The product of two fp32 is exact in double, so fusing it with the sum changes nothing.
  HWY_INLINE void add_squares(VFloat x) {
    const auto first = low_doubles(x);
    const auto second = high_doubles(x);
    low = hn::MulAdd(first, first, low);
    high = hn::MulAdd(second, second, high);
  }
};

/// Counts of lanes that go into an array.
HWY_INLINE void add_to(LaneErrors::Counts& counts, std::size_t lane, VWord more) {
  hn::Store(hn::Add(hn::Load(Words(), counts.data() + lane), more), Words(), counts.data() + lane);
}
HWY_INLINE void raise(LaneErrors::Counts& counts, std::size_t lane, VWord to) {
  hn::Store(hn::Max(hn::Load(Words(), counts.data() + lane), to), Words(), counts.data() + lane);
}

/// Squares and number of the elements for which chosen(x, value of the code) is true.
template <class Chosen>
HWY_INLINE void add_chosen(const float* x, const float* values, std::size_t steps, std::size_t lane,
                           LaneErrors::Sums& squares, LaneErrors::Counts& counts, Chosen&& chosen) {
  HeldSums sums(squares, lane);
  VWord count = hn::Zero(Words());
  for (std::size_t i = lane; i < steps * kErrorLanes; i += kErrorLanes) {
    const auto original = hn::Load(Floats(), x + i);
    const auto is = chosen(original, hn::Load(Floats(), values + i));
    count = hn::Sub(count, hn::VecFromMask(Words(), hn::RebindMask(Words(), is)));
    sums.add_squares(hn::IfThenElseZero(is, original));
  }
  sums.put(squares, lane);
  add_to(counts, lane, count);
}

HWY_INLINE void add_products(VDouble x, VDouble q, VDouble& errors, VDouble& signals, VDouble& quantized,
                             VDouble& products) {
  const auto error = hn::Sub(x, q);
  errors = hn::Add(errors, hn::Mul(error, error));  // no fp32: rounded as the reference does it
  signals = hn::MulAdd(x, x, signals);
  quantized = hn::MulAdd(q, q, quantized);
  products = hn::MulAdd(x, q, products);
}

/// kFloats of the lanes. Leaving out an element of the rarer sums is adding 0, which changes no bit of them.
HWY_INLINE void add_lanes(const float* x, const float* values, std::size_t steps, std::size_t lane,
                          const LaneScales& scales, LaneErrors& sums) {
  const Floats df;
  const Words d;
  const hn::RebindToSigned<Words> di;
  const auto scale = hn::Load(df, scales.scale.data() + lane);
  const auto limit = hn::Load(df, scales.limit.data() + lane);
  const auto zero = hn::Zero(df);
  HeldSums errors(sums.error_squares, lane);
  HeldSums signals(sums.signal_squares, lane);
  HeldSums quantized(sums.quantized_squares, lane);
  HeldSums products(sums.products, lane);
  VWord overflows = hn::Zero(d);
  VWord largest = overflows;
  VWord max_error = overflows;
  VWord flushed = overflows;
  for (std::size_t i = lane; i < steps * kErrorLanes; i += kErrorLanes) {
    const auto original = hn::Load(df, x + i);
    const auto q = hn::Mul(hn::Load(df, values + i), scale);
    const auto value = hn::Abs(original);
    // Magnitudes order as signed integers: the difference is negative where one is above the limit.
    const auto below = hn::Sub(hn::BitCast(di, limit), hn::BitCast(di, value));
    overflows = hn::Add(overflows, hn::ShiftRight<31>(hn::BitCast(d, below)));
    largest = hn::Max(largest, hn::BitCast(d, value));
    max_error = hn::Max(max_error, magnitude(hn::Sub(original, q)));
    flushed = hn::Or(flushed, hn::IfThenElseZero(hn::RebindMask(d, hn::Eq(q, zero)), hn::BitCast(d, value)));
    add_products(low_doubles(original), low_doubles(q), errors.low, signals.low, quantized.low, products.low);
    add_products(high_doubles(original), high_doubles(q), errors.high, signals.high, quantized.high,
                 products.high);
  }
  errors.put(sums.error_squares, lane);
  signals.put(sums.signal_squares, lane);
  quantized.put(sums.quantized_squares, lane);
  products.put(sums.products, lane);
  add_to(sums.overflows, lane, overflows);
  raise(sums.largest, lane, largest);
  raise(sums.max_error, lane, max_error);
  if (!hn::AllTrue(d, hn::Eq(flushed, hn::Zero(d)))) {
    add_chosen(x, values, steps, lane, sums.flushed_squares, sums.underflows,
               [&](VFloat from, VFloat code) HWY_ATTR {
                 return hn::And(hn::Eq(hn::Mul(code, scale), zero), hn::Gt(hn::Abs(from), zero));
               });
  }
  const auto suspect = hn::Mul(scale, hn::Set(df, scales.suspect_from()));
  if (HWY_UNLIKELY(!hn::AllFalse(df, hn::Ge(hn::BitCast(df, largest), suspect)))) {
    add_chosen(x, values, steps, lane, sums.saturated_squares, sums.saturated,
               [&](VFloat from, VFloat) HWY_ATTR {
                 return hn::Ge(hn::Div(hn::Abs(from), scale), hn::Set(df, scales.saturates_from));
               });
  }
}

void add_errors(const float* x, const float* values, std::size_t steps, const LaneScales& scales,
                LaneErrors& sums) {
  for (std::size_t lane = 0; lane < kErrorLanes; lane += kFloats) {
    add_lanes(x, values, steps, lane, scales, sums);
  }
}

/// Block b of the result is the four floats at in + b * distance. By words of 64 bits: GCC 12 fails to
/// compile the choice between floats with its sanitizers.
HWY_INLINE VFloat load_blocks(const float* in, std::size_t distance) {
  const hn::Repartition<std::uint64_t, Floats> d;
  const auto block = [&](std::size_t b) HWY_ATTR {
    return hn::LoadDup128(d, reinterpret_cast<const std::uint64_t*>(in + b * distance));
  };
  auto result = block(0);
  if constexpr (kFloats >= 8) result = hn::ConcatUpperLower(d, block(kFloats / 8), result);
  if constexpr (kFloats == 16) {
    const auto odd = hn::ConcatUpperLower(d, block(3), block(1));
    alignas(64) static constexpr std::uint64_t kOdd[8] = {0, 0, ~0ULL, ~0ULL, 0, 0, ~0ULL, ~0ULL};
    result = hn::IfThenElse(hn::MaskFromVec(hn::Load(d, kOdd)), odd, result);
  }
  return hn::BitCast(Floats(), result);
}

/// Four steps at a time: a vector holds those of every fourth lane, so that transposing 4 x 4 in its blocks
/// brings the lanes into their order.
void interleave(const float* rows, std::size_t stride, std::size_t steps, float* out) {
  const Floats d;
  std::size_t step = 0;
  for (; step + 4 <= steps; step += 4) {
    for (std::size_t lane = 0; lane < kErrorLanes; lane += kFloats) {
      const float* from = rows + lane * stride + step;
      const auto a = load_blocks(from, 4 * stride);
      const auto b = load_blocks(from + stride, 4 * stride);
      const auto c = load_blocks(from + 2 * stride, 4 * stride);
      const auto e = load_blocks(from + 3 * stride, 4 * stride);
      const auto ac_low = hn::InterleaveLower(d, a, c);
      const auto ac_high = hn::InterleaveUpper(d, a, c);
      const auto be_low = hn::InterleaveLower(d, b, e);
      const auto be_high = hn::InterleaveUpper(d, b, e);
      float* to = out + step * kErrorLanes + lane;
      hn::StoreU(hn::InterleaveLower(d, ac_low, be_low), d, to);
      hn::StoreU(hn::InterleaveUpper(d, ac_low, be_low), d, to + kErrorLanes);
      hn::StoreU(hn::InterleaveLower(d, ac_high, be_high), d, to + 2 * kErrorLanes);
      hn::StoreU(hn::InterleaveUpper(d, ac_high, be_high), d, to + 3 * kErrorLanes);
    }
  }
  kReferenceBlockErrors.interleave(rows + step, stride, steps - step, out + step * kErrorLanes);
}

template <class T>
void widen(const T* x, std::size_t count, float* out) {
  std::size_t i = 0;
  for (; i + kFloats <= count; i += kFloats) hn::StoreU(load(x + i), Floats(), out + i);
  for (; i < count; ++i) out[i] = to_float(x[i]);
}

/// The values have four significant bits and are looked up as bf16, their two bytes in a table each.
void decode_e2m1_pairs(const std::uint8_t* pairs, std::size_t count, float* values) {
  const hn::CappedTag<std::uint8_t, 16> d;
  alignas(16) static constexpr std::uint8_t kUpper[16] = {0x00, 0x3F, 0x3F, 0x3F, 0x40, 0x40, 0x40, 0x40,
                                                          0x80, 0xBF, 0xBF, 0xBF, 0xC0, 0xC0, 0xC0, 0xC0};
  alignas(16) static constexpr std::uint8_t kLower[16] = {0x00, 0x00, 0x80, 0xC0, 0x00, 0x40, 0x80, 0xC0,
                                                          0x00, 0x00, 0x80, 0xC0, 0x00, 0x40, 0x80, 0xC0};
  const auto upper = hn::Load(d, kUpper);
  const auto lower = hn::Load(d, kLower);
  alignas(16) std::array<std::uint8_t, 32> halves;
  const auto low_nibble = hn::Set(d, std::uint8_t{0x0F});
  std::size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const hn::CappedTag<std::uint8_t, 8> eight;
    const auto bytes = hn::ZeroExtendVector(d, hn::LoadU(eight, pairs + i / 2));
    const auto nibbles =
        hn::InterleaveLower(d, hn::And(bytes, low_nibble), hn::And(hn::ShiftRight<4>(bytes), low_nibble));
    const auto first = hn::TableLookupBytes(lower, nibbles);
    const auto second = hn::TableLookupBytes(upper, nibbles);
    hn::Store(hn::InterleaveLower(d, first, second), d, halves.data());
    hn::Store(hn::InterleaveUpper(d, first, second), d, halves.data() + 16);
    const auto* words = reinterpret_cast<const BF16*>(halves.data());
    for (std::size_t k = 0; k < 16; k += kFloats) hn::StoreU(load(words + k), Floats(), values + i + k);
  }
  kReferenceBlockErrors.decode_e2m1(pairs + i / 2, count - i, values + i);
}

void put_block_error(Loops& loops) {
  static constexpr BlockErrorLoops kLoops{.add = add_errors,
                                          .interleave = interleave,
                                          .widen_bf16 = widen<BF16>,
                                          .widen_f16 = widen<F16>,
                                          .decode_e2m1 = decode_e2m1_pairs};
  loops.block_errors = &kLoops;
}

}  // namespace HWY_NAMESPACE
}  // namespace amaxscope::cpu
HWY_AFTER_NAMESPACE();
#endif
