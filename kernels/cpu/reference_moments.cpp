#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "kernels/cpu/reference_sums.hpp"

namespace amaxscope::cpu::reference {

namespace {

using amaxscope::moments::from_order_key;
using amaxscope::moments::order_key;

template <class Action>
void over_elements(const float* values, std::size_t count, Action&& action) {
  over_lanes(count, [&](std::size_t lane, std::size_t i) { action(lane, static_cast<double>(values[i])); });
}

/// Sums and moments of finite values. The mean comes first; where a sum of squares alone would lose a
/// variance that is small against it, the deviations from it are squared (with the correction for what the
/// mean itself was rounded by).
template <MomentOrder order>
void add_sums(const float* values, std::size_t count, TensorMoments& moments) {
  LaneSums sum;
  LaneSums l1;
  LaneSums squares;
  over_elements(values, count, [&](std::size_t lane, double x) {
    sum.lanes[lane] += x;
    l1.lanes[lane] += x < 0 ? -x : x;
    squares.lanes[lane] += x * x;
  });
  const double n = static_cast<double>(count);
  moments.sum = sum.total();
  moments.l1 = l1.total();
  moments.sum_squares = squares.total();
  moments.mean = moments.sum / n;
  const std::optional<double> m2 = m2_of_sums(moments.sum, moments.sum_squares, n);
  moments.m2 = m2.value_or(0.0);
  if (m2 && order == MomentOrder::kSecond) return;
  LaneSums deviation;
  LaneSums deviation_squares;
  over_elements(values, count, [&](std::size_t lane, double x) {
    const double difference = x - moments.mean;
    deviation.lanes[lane] += difference;
    deviation_squares.lanes[lane] += difference * difference;
  });
  const double rest = deviation.total();
  const double squares_about_mean = deviation_squares.total();
  if (!m2) moments.m2 = std::max(0.0, squares_about_mean - rest * rest / n);
  if constexpr (order == MomentOrder::kFourth) {
    LaneSums cubes;
    LaneSums fourths;
    over_elements(values, count, [&](std::size_t lane, double x) {
      const double difference = x - moments.mean;
      const double square = difference * difference;
      cubes.lanes[lane] += square * difference;
      fourths.lanes[lane] += square * square;
    });
    // Sums of (d - r)^3 and (d - r)^4, where r is what the mean was rounded by.
    const double r = rest / n;
    moments.m3 = cubes.total() - 3 * r * squares_about_mean + 2 * n * r * r * r;
    moments.m4 = std::max(0.0, fourths.total() - 4 * r * cubes.total() + 6 * r * r * squares_about_mean -
                                   3 * n * r * r * r * r);
  }
}

/// Everything but the counts of NaN and Inf, of a block without them.
template <MomentOrder order>
void add_finite(const float* values, std::size_t count, TensorMoments& moments) {
  std::int32_t smallest = std::numeric_limits<std::int32_t>::max();
  std::int32_t largest = std::numeric_limits<std::int32_t>::min();
  std::int32_t amax = 0;
  // Magnitude - 1 as unsigned: zero becomes the largest value. The sign flip makes a signed minimum order it.
  std::int32_t amin = std::numeric_limits<std::int32_t>::max();
  std::int32_t nonzero = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t key = order_key(values[i]);
    const auto magnitude = static_cast<std::int32_t>(magnitude_of(values[i]));
    smallest = std::min(smallest, key);
    largest = std::max(largest, key);
    amax = std::max(amax, magnitude);
    amin =
        std::min(amin, static_cast<std::int32_t>((static_cast<std::uint32_t>(magnitude) - 1U) ^ 0x80000000U));
    nonzero += magnitude != 0 ? 1 : 0;
  }
  moments.min = moments.min_finite = from_order_key(smallest);
  moments.max = moments.max_finite = from_order_key(largest);
  moments.amax_finite = std::bit_cast<float>(amax);
  if (nonzero != 0) {
    moments.amin_nonzero = std::bit_cast<float>((static_cast<std::uint32_t>(amin) ^ 0x80000000U) + 1U);
  }
  moments.nonzero = static_cast<std::uint64_t>(nonzero);
  add_sums<order>(values, count, moments);
}

bool all_finite(const float* values, std::size_t count) {
  std::int32_t largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    largest = std::max(largest, static_cast<std::int32_t>(magnitude_of(values[i])));
  }
  return static_cast<std::uint32_t>(largest) < kInfinity;
}

template <MomentOrder order>
TensorMoments moments_of_block(const float* values, std::size_t count) {
  TensorMoments result;
  if (all_finite(values, count)) {
    add_finite<order>(values, count, result);
    result.numel = count;
    return result;
  }
  std::array<float, kBlock> finite;
  std::size_t kept = 0;
  std::uint64_t nan = 0;
  std::uint64_t negative = 0;
  std::uint64_t positive = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t magnitude = magnitude_of(values[i]);
    if (magnitude < kInfinity) {
      finite[kept++] = values[i];
    } else if (magnitude > kInfinity) {
      ++nan;
    } else {
      ++(values[i] < 0 ? negative : positive);
    }
  }
  if (kept != 0) add_finite<order>(finite.data(), kept, result);
  result.numel = count;
  result.nan = nan;
  result.inf = negative + positive;
  result.nonzero += nan + result.inf;
  constexpr float kInf = std::numeric_limits<float>::infinity();
  if (positive != 0) result.max = kInf;
  if (negative != 0) result.min = -kInf;
  return result;
}

/// The block as fp32: itself, or widened into the buffer.
const float* as_float(const float* values, std::size_t, std::array<float, kBlock>&) { return values; }
template <class T>
const float* as_float(const T* values, std::size_t count, std::array<float, kBlock>& buffer) {
  for (std::size_t i = 0; i < count; ++i) buffer[i] = to_float(values[i]);
  return buffer.data();
}

}  // namespace

template <class T>
TensorMoments moments(const T* x, std::size_t count, MomentOrder order) {
  std::array<float, kBlock> buffer;
  const float* values = as_float(x, count, buffer);
  return order == MomentOrder::kFourth ? moments_of_block<MomentOrder::kFourth>(values, count)
                                       : moments_of_block<MomentOrder::kSecond>(values, count);
}

template TensorMoments moments(const float*, std::size_t, MomentOrder);
template TensorMoments moments(const F16*, std::size_t, MomentOrder);
template TensorMoments moments(const BF16*, std::size_t, MomentOrder);

}  // namespace amaxscope::cpu::reference
