// Maxima of magnitudes, and moments.
#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "kernels/cpu/simd/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd/scan.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/reference_sums.hpp"
#include "kernels/cpu/simd/vectors-inl.hpp"

#if AMAXSCOPE_SIMD
HWY_BEFORE_NAMESPACE();
namespace amaxscope::cpu {
namespace HWY_NAMESPACE {

template <class T>
struct PatternOf {
  using Bits = std::uint32_t;
  static constexpr std::size_t kShift = 0;  ///< from the pattern to that of fp32
};
template <>
struct PatternOf<BF16> {
  using Bits = std::uint16_t;
  static constexpr std::size_t kShift = 16;
};

template <class T>
std::uint32_t largest(const T* x, std::size_t count) {
  using Bits = typename PatternOf<T>::Bits;
  const hn::ScalableTag<Bits> d;
  constexpr std::size_t kStep = HWY_MAX_BYTES / sizeof(Bits);
  const auto mask = hn::Set(d, std::numeric_limits<Bits>::max() >> 1);
  const auto* bits = reinterpret_cast<const Bits*>(x);
  auto a = hn::Zero(d);
  auto b = a;
  auto c = a;
  auto e = a;
  std::size_t i = 0;
  for (; i + 4 * kStep <= count; i += 4 * kStep) {
    prefetch<4 * HWY_MAX_BYTES>(bits + i);
    a = hn::Max(a, hn::And(mask, hn::LoadU(d, bits + i)));
    b = hn::Max(b, hn::And(mask, hn::LoadU(d, bits + i + kStep)));
    c = hn::Max(c, hn::And(mask, hn::LoadU(d, bits + i + 2 * kStep)));
    e = hn::Max(e, hn::And(mask, hn::LoadU(d, bits + i + 3 * kStep)));
  }
  alignas(64) std::array<Bits, kStep> lanes;
  hn::Store(hn::Max(hn::Max(a, b), hn::Max(c, e)), d, lanes.data());
  Bits result = *std::max_element(lanes.begin(), lanes.end());
  for (; i < count; ++i) {
    result = std::max(result, static_cast<Bits>(bits[i] & (std::numeric_limits<Bits>::max() >> 1)));
  }
  return static_cast<std::uint32_t>(result) << PatternOf<T>::kShift;
}

/// NaN shows as a maximum above Inf; only then a stretch is read again without it.
template <class T>
std::uint32_t amax(const T* x, std::size_t count) {
  constexpr std::size_t kStretch = 4096;
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

/// Sixteen sums.
constexpr std::size_t kParts = kLanes / kDoubles;
struct Lanes {
  VDouble parts[kParts];
  HWY_INLINE Lanes() {
    for (auto& part : parts) part = hn::Zero(Doubles());
  }
  HWY_INLINE void store(double* lanes) const {
    for (std::size_t k = 0; k < kParts; ++k) hn::StoreU(parts[k], Doubles(), lanes + k * kDoubles);
  }
};
using LaneArray = std::array<double, kLanes>;

HWY_INLINE double total(const LaneArray& lanes) {
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

HWY_INLINE VDouble load_double(const float* x) {
  return hn::PromoteTo(Doubles(), hn::LoadU(hn::Rebind<float, Doubles>(), x));
}

struct Extremes {
  std::int32_t smallest = std::numeric_limits<std::int32_t>::max();  ///< order keys (kernels/moments.hpp)
  std::int32_t largest = std::numeric_limits<std::int32_t>::min();
  std::uint32_t least_nonzero = std::numeric_limits<std::uint32_t>::max();  ///< magnitude - 1
  std::uint32_t nonzero = 0;
};

/// First pass: extremes and plain sums. The squares of fp32 are exact in double, so fusing changes nothing.
/// False when there is something that is not finite.
HWY_INLINE bool first_pass(const float* x, std::size_t count, Extremes& extremes, LaneArray& sum,
                           LaneArray& l1, LaneArray& squares) {
  const Words du;
  const hn::RebindToSigned<Words> di;
  auto smallest = hn::Set(di, extremes.smallest);
  auto largest = hn::Set(di, extremes.largest);
  auto least = hn::Set(du, extremes.least_nonzero);
  auto zeros = hn::Zero(du);
  Lanes s;
  Lanes a;
  Lanes q;
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    prefetch<kLanes * sizeof(float)>(x + i);
    for (std::size_t k = 0; k < kLanes / kFloats; ++k) {
      const auto bits = hn::LoadU(du, reinterpret_cast<const std::uint32_t*>(x + i + k * kFloats));
      const auto value = hn::And(bits, hn::Set(du, kMagnitudeMask));
      const auto flip = hn::And(hn::ShiftRight<31>(hn::BitCast(di, bits)), hn::Set(di, 0x7FFFFFFF));
      const auto key = hn::Xor(hn::BitCast(di, bits), flip);
      smallest = hn::Min(smallest, key);
      largest = hn::Max(largest, key);
      least = hn::Min(least, hn::Sub(value, hn::Set(du, 1U)));
      zeros = hn::Sub(zeros, hn::VecFromMask(du, hn::Eq(value, hn::Zero(du))));
    }
    for (std::size_t k = 0; k < kParts; ++k) {
      const auto v = load_double(x + i + k * kDoubles);
      s.parts[k] = hn::Add(s.parts[k], v);
      a.parts[k] = hn::Add(a.parts[k], hn::Abs(v));
      q.parts[k] = hn::MulAdd(v, v, q.parts[k]);
    }
  }
  extremes.smallest = hn::GetLane(hn::MinOfLanes(di, smallest));
  extremes.largest = hn::GetLane(hn::MaxOfLanes(di, largest));
  extremes.least_nonzero = hn::GetLane(hn::MinOfLanes(du, least));
  extremes.nonzero = static_cast<std::uint32_t>(i) - hn::GetLane(hn::SumOfLanes(du, zeros));
  s.store(sum.data());
  a.store(l1.data());
  q.store(squares.data());
  for (std::size_t lane = 0; i + lane < count; ++lane) {
    const float value = x[i + lane];
    const std::int32_t key = amaxscope::moments::order_key(value);
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value) & kMagnitudeMask;
    extremes.smallest = std::min(extremes.smallest, key);
    extremes.largest = std::max(extremes.largest, key);
    extremes.least_nonzero = std::min(extremes.least_nonzero, bits - 1U);
    extremes.nonzero += bits != 0 ? 1U : 0U;
    const auto v = static_cast<double>(value);
    sum[lane] += v;
    l1[lane] += v < 0 ? -v : v;
    squares[lane] += v * v;
  }
  const auto bits_of = [](std::int32_t key) {
    return std::bit_cast<std::uint32_t>(amaxscope::moments::from_order_key(key)) & kMagnitudeMask;
  };
  return std::max(bits_of(extremes.smallest), bits_of(extremes.largest)) < kInfinity;
}

/// Second pass, over the cached block: sums of powers of the deviation from the mean. Its powers are not
/// exact in double: each is rounded, as the reference does it.
template <bool kFourth>
HWY_INLINE void second_pass(const float* x, std::size_t count, double mean, LaneArray& first,
                            LaneArray& second, LaneArray& third, LaneArray& fourth) {
  const auto m = hn::Set(Doubles(), mean);
  Lanes sums[kFourth ? 4 : 2];
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::size_t k = 0; k < kParts; ++k) {
      const auto difference = hn::Sub(load_double(x + i + k * kDoubles), m);
      const auto square = hn::Mul(difference, difference);
      sums[0].parts[k] = hn::Add(sums[0].parts[k], difference);
      sums[1].parts[k] = hn::Add(sums[1].parts[k], square);
      if constexpr (kFourth) {
        sums[2].parts[k] = hn::Add(sums[2].parts[k], hn::Mul(square, difference));
        sums[3].parts[k] = hn::Add(sums[3].parts[k], hn::Mul(square, square));
      }
    }
  }
  sums[0].store(first.data());
  sums[1].store(second.data());
  if constexpr (kFourth) {
    sums[2].store(third.data());
    sums[3].store(fourth.data());
  }
  for (std::size_t lane = 0; i + lane < count; ++lane) {
    const double difference = static_cast<double>(x[i + lane]) - mean;
    const double square = difference * difference;
    first[lane] += difference;
    second[lane] += square;
    if constexpr (kFourth) {
      third[lane] += square * difference;
      fourth[lane] += square * square;
    }
  }
}

HWY_INLINE const float* as_float(const float* x, std::size_t, float*) { return x; }
HWY_INLINE const float* as_float(const BF16* x, std::size_t count, float* buffer) {
  std::size_t i = 0;
  for (; i + kFloats <= count; i += kFloats) {
    prefetch<kFloats * sizeof(BF16)>(x + i);
    hn::StoreU(load(x + i), Floats(), buffer + i);
  }
  for (; i < count; ++i) buffer[i] = to_float(x[i]);
  return buffer;
}

template <class T>
TensorMoments moments(const T* x, std::size_t count, MomentOrder order) {
  alignas(64) float buffer[kBlock];
  const float* values = as_float(x, count, buffer);
  Extremes extremes;
  LaneArray sum;
  LaneArray l1;
  LaneArray squares;
  if (!first_pass(values, count, extremes, sum, l1, squares)) return reference::moments(x, count, order);
  const auto n = static_cast<double>(count);
  TensorMoments result;
  result.numel = count;
  result.nonzero = extremes.nonzero;
  result.min = result.min_finite = amaxscope::moments::from_order_key(extremes.smallest);
  result.max = result.max_finite = amaxscope::moments::from_order_key(extremes.largest);
  const auto abs_bits = [](float value) { return std::bit_cast<std::uint32_t>(value) & kMagnitudeMask; };
  result.amax_finite = std::bit_cast<float>(std::max(abs_bits(result.min), abs_bits(result.max)));
  if (extremes.nonzero != 0) result.amin_nonzero = std::bit_cast<float>(extremes.least_nonzero + 1U);
  result.sum = total(sum);
  result.l1 = total(l1);
  result.sum_squares = total(squares);
  result.mean = result.sum / n;
  LaneArray first;
  LaneArray second;
  LaneArray third;
  LaneArray fourth;
  if (order == MomentOrder::kSecond) {
    second_pass<false>(values, count, result.mean, first, second, third, fourth);
  } else {
    second_pass<true>(values, count, result.mean, first, second, third, fourth);
  }
  const double rest = total(first);
  const double squares_about_mean = total(second);
  result.m2 = std::max(0.0, squares_about_mean - rest * rest / n);
  if (order == MomentOrder::kFourth) {
    const double r = rest / n;
    const double cubes = total(third);
    result.m3 = cubes - 3 * r * squares_about_mean + 2 * n * r * r * r;
    result.m4 =
        std::max(0.0, total(fourth) - 4 * r * cubes + 6 * r * r * squares_about_mean - 3 * n * r * r * r * r);
  }
  return result;
}

template <class T>
void put(ElementLoops<T>& loops) {
  loops.amax = amax<T>;
  loops.largest = largest<T>;
  loops.column_amax = column_amax<T>;
  loops.moments = moments<T>;
}
void put_scan(Loops& loops) {
  put(loops.f32);
  put(loops.bf16);
}

}  // namespace HWY_NAMESPACE
}  // namespace amaxscope::cpu
HWY_AFTER_NAMESPACE();
#endif
