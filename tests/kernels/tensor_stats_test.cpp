#include "kernels/tensor_stats.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/error.hpp"
#include "tests/kernels/values.hpp"

namespace amaxscope::test {
namespace {

TensorMoments stats_of(const std::vector<float>& values) {
  return tensor_stats(
      Tensor::of<float>(std::span<const float>(values), {static_cast<std::int64_t>(values.size())}));
}

double sample_variance(const TensorMoments& moments) {
  return moments.m2 / static_cast<double>(moments.finite() - 1);
}

/// Two passes in long double: the definition.
struct Reference {
  explicit Reference(const std::vector<float>& values) {
    for (const float x : values) {
      sum += static_cast<long double>(x);
      l1 += std::abs(static_cast<long double>(x));
      squares += static_cast<long double>(x) * static_cast<long double>(x);
    }
    mean = sum / static_cast<long double>(values.size());
    for (const float x : values)
      m2 += (static_cast<long double>(x) - mean) * (static_cast<long double>(x) - mean);
  }
  long double sum = 0, l1 = 0, squares = 0, mean = 0, m2 = 0;
};

void expect_relative(double value, long double expected, double tolerance) {
  EXPECT_NEAR(value, static_cast<double>(expected), static_cast<double>(std::abs(expected)) * tolerance);
}

TEST(TensorStats, WorkedNumbers) {
  const TensorMoments moments = stats_of({1, -2, 0, 4, -0.0F});
  EXPECT_EQ(moments.numel, 5U);
  EXPECT_EQ(moments.nan, 0U);
  EXPECT_EQ(moments.inf, 0U);
  EXPECT_EQ(moments.nonzero, 3U);
  EXPECT_EQ(moments.min, -2.0F);
  EXPECT_EQ(moments.max, 4.0F);
  EXPECT_EQ(moments.amax_finite, 4.0F);
  EXPECT_EQ(moments.amin_nonzero, 1.0F);
  EXPECT_EQ(moments.sum, 3.0);
  EXPECT_EQ(moments.l1, 7.0);
  EXPECT_EQ(moments.sum_squares, 21.0);
  EXPECT_DOUBLE_EQ(moments.mean, 0.6);
  EXPECT_DOUBLE_EQ(moments.m2, 19.2);  // 21 - 9 / 5
}

void expect_identity(const TensorMoments& moments) {
  EXPECT_EQ(moments.numel, 0U);
  EXPECT_EQ(moments.nonzero, 0U);
  EXPECT_EQ(moments.min, kInf);
  EXPECT_EQ(moments.max, -kInf);
  EXPECT_EQ(moments.min_finite, kInf);
  EXPECT_EQ(moments.max_finite, -kInf);
  EXPECT_EQ(moments.amax_finite, 0.0F);
  EXPECT_EQ(moments.amin_nonzero, kInf);
  EXPECT_EQ(moments.sum, 0.0);
  EXPECT_EQ(moments.mean, 0.0);
  EXPECT_EQ(moments.m2, 0.0);
  EXPECT_EQ(moments.m3, 0.0);
  EXPECT_EQ(moments.m4, 0.0);
}

TEST(TensorStats, OfNothingIsTheIdentityOfMerge) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    expect_identity(tensor_stats(TensorView(nullptr, dtype, {0, 8})));
    expect_identity(tensor_stats(TensorView(nullptr, dtype, {8, 0}, {}, {}, 4)));
  }
  TensorMoments some = stats_of({-3, 2});
  some.merge(TensorMoments());
  TensorMoments none;
  none.merge(stats_of({-3, 2}));
  for (const TensorMoments& moments : {some, none}) {
    EXPECT_EQ(moments.numel, 2U);
    EXPECT_EQ(moments.min, -3.0F);
    EXPECT_EQ(moments.max, 2.0F);
    EXPECT_EQ(moments.mean, -0.5);
    EXPECT_EQ(moments.m2, 12.5);
  }
  TensorMoments empty;
  empty.merge(TensorMoments());
  expect_identity(empty);
}

TEST(TensorStats, AllZero) {
  const TensorMoments moments = stats_of({0, 0, 0});
  EXPECT_EQ(moments.nonzero, 0U);
  EXPECT_EQ(moments.amax_finite, 0.0F);
  EXPECT_EQ(moments.amin_nonzero, kInf);
  EXPECT_EQ(moments.m2, 0.0);
}

TEST(TensorStats, NonFiniteElementsAreCountedAndLeftOut) {
  const TensorMoments moments = stats_of({kNaN, 3, kInf, -kInf, 0, -kNaN, 1, kInf});
  EXPECT_EQ(moments.numel, 8U);
  EXPECT_EQ(moments.nan, 2U);
  EXPECT_EQ(moments.inf, 3U);
  EXPECT_EQ(moments.finite(), 3U);
  EXPECT_EQ(moments.nonzero, 7U);
  EXPECT_EQ(moments.min, -kInf);
  EXPECT_EQ(moments.max, kInf);
  EXPECT_EQ(moments.min_finite, 0.0F);
  EXPECT_EQ(moments.max_finite, 3.0F);
  EXPECT_EQ(moments.amax_finite, 3.0F);
  EXPECT_EQ(moments.amin_nonzero, 1.0F);
  EXPECT_EQ(moments.sum, 4.0);
  EXPECT_EQ(moments.l1, 4.0);
  EXPECT_EQ(moments.sum_squares, 10.0);
  EXPECT_DOUBLE_EQ(moments.mean, 4.0 / 3);
}

TEST(TensorStats, WithoutAFiniteElement) {
  const TensorMoments only_nan = stats_of({kNaN, kNaN});
  EXPECT_EQ(only_nan.min, kInf);
  EXPECT_EQ(only_nan.max, -kInf);
  EXPECT_EQ(only_nan.nan, 2U);
  EXPECT_EQ(only_nan.finite(), 0U);
  EXPECT_EQ(only_nan.mean, 0.0);
  const TensorMoments only_inf = stats_of({kInf, kNaN, kInf});
  EXPECT_EQ(only_inf.min, kInf);
  EXPECT_EQ(only_inf.max, kInf);
  EXPECT_EQ(only_inf.amax_finite, 0.0F);
  EXPECT_EQ(only_inf.sum, 0.0);
  TensorMoments merged = only_inf;
  merged.merge(stats_of({5, 7}));
  EXPECT_EQ(merged.mean, 6.0);
  EXPECT_EQ(merged.m2, 2.0);
  EXPECT_EQ(merged.min, 5.0F);
  EXPECT_EQ(merged.max, kInf);
}

TEST(TensorStats, Subnormals) {
  const TensorMoments moments = stats_of({kDenormal, -3 * kDenormal, 0});
  EXPECT_EQ(moments.nonzero, 2U);
  EXPECT_EQ(moments.amin_nonzero, kDenormal);
  EXPECT_EQ(moments.amax_finite, 3 * kDenormal);
  EXPECT_EQ(moments.min, -3 * kDenormal);
  EXPECT_EQ(moments.l1, 4 * 0x1p-149);
  EXPECT_EQ(moments.sum_squares, 10 * 0x1p-298);
}

TEST(TensorStats, DoesNotAccumulateInTheTensorsOwnPrecision) {
  const std::vector<BF16> ones(5120, to_bf16(1.0F));
  const TensorMoments bf16 = tensor_stats(Tensor::of<BF16>(std::span<const BF16>(ones), {5120}));
  EXPECT_EQ(bf16.l1, 5120.0);
  EXPECT_EQ(bf16.mean, 1.0);
  EXPECT_EQ(bf16.m2, 0.0);

  TensorMoments f16 = tensor_stats(Tensor::of<F16>({to_f16(300.0F)}, {1}));
  f16.merge(tensor_stats(Tensor::of<F16>({to_f16(400.0F)}, {1})));
  EXPECT_EQ(std::sqrt(f16.sum_squares), 500.0);

  const TensorMoments large = stats_of({1e30F, 1e30F});
  EXPECT_NEAR(std::sqrt(large.sum_squares), 1.41421e30, 1e25);
}

TEST(TensorStats, CountsBeyondTheIntegersOfFp32) {
  constexpr std::int64_t kCount = 16'777'217;
  Tensor x(DType::kBF16, {kCount});
  std::ranges::fill(x.values<BF16>(), to_bf16(1.0F));
  const TensorMoments moments = tensor_stats(x);
  EXPECT_EQ(moments.numel, 16'777'217U);
  EXPECT_EQ(moments.nonzero, 16'777'217U);
  EXPECT_EQ(moments.sum, 16'777'217.0);
}

TEST(TensorStats, MergesUnequalMeans) {
  TensorMoments quarters = stats_of({0, 1, 2, 3});
  quarters.merge(stats_of({10, 11, 12, 13}));
  EXPECT_DOUBLE_EQ(sample_variance(quarters), 30.0);
  quarters.merge(stats_of({100, 101, 102, 103}));
  EXPECT_NEAR(sample_variance(quarters), 2207.42, 0.005);

  TensorMoments uneven = stats_of({1, 2});
  uneven.merge(stats_of({1, 2, 3, 4}));
  EXPECT_NEAR(sample_variance(uneven), 1.36667, 5e-6);

  TensorMoments constant = stats_of({0, 0, 0, 0});
  constant.merge(stats_of({2, 2, 2, 2}));
  EXPECT_DOUBLE_EQ(sample_variance(constant), 8.0 / 7.0);
}

TEST(TensorStats, MergesSingleElements) {
  TensorMoments moments;
  for (const float x : {1.0F, 5.0F, 9.0F}) moments.merge(stats_of({x}));
  EXPECT_EQ(moments.mean, 5.0);
  EXPECT_EQ(moments.m2, 32.0);
}

/// A mean a million times the deviation: the sum of squares alone would lose the variance.
TEST(TensorStats, SmallDeviationAroundALargeMean) {
  std::vector<float> values = sample(100'003, 11);
  for (float& x : values) x = x * 4 + 1e6F;
  const Reference reference(values);
  const TensorMoments whole = stats_of(values);
  expect_relative(whole.mean, reference.mean, 1e-14);
  expect_relative(whole.m2, reference.m2, 1e-11);
  TensorMoments merged;
  for (std::size_t first = 0; first < values.size(); first += 777) {
    const std::size_t last = std::min(first + 777, values.size());
    merged.merge(stats_of({values.begin() + static_cast<std::ptrdiff_t>(first),
                           values.begin() + static_cast<std::ptrdiff_t>(last)}));
  }
  EXPECT_EQ(merged.numel, whole.numel);
  expect_relative(merged.m2, reference.m2, 1e-11);
}

TEST(TensorStats, EqualsTheDefinitionAtEveryLength) {
  for (const std::int64_t length : {1, 2, 15, 16, 17, 2047, 2048, 2049, 4096, 10'007}) {
    const std::vector<float> values = sample(length, static_cast<unsigned>(length));
    const Reference reference(values);
    const TensorMoments moments = stats_of(values);
    const auto magnitude = static_cast<double>(reference.l1);
    EXPECT_NEAR(moments.sum, static_cast<double>(reference.sum), magnitude * 1e-14);
    expect_relative(moments.l1, reference.l1, 1e-13);
    expect_relative(moments.sum_squares, reference.squares, 1e-13);
    expect_relative(moments.m2, reference.m2, 1e-12);
    EXPECT_EQ(moments.min, *std::ranges::min_element(values));
    EXPECT_EQ(moments.max, *std::ranges::max_element(values));
    EXPECT_EQ(moments.nonzero,
              static_cast<std::uint64_t>(std::ranges::count_if(values, [](float x) { return x != 0; })));
  }
}

TEST(TensorStats, HalfTypesGiveTheStatisticsOfTheirFp32Values) {
  const Tensor x = sample_tensor({41, 77}, 12);
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const Tensor half = converted(x, dtype);
    const TensorMoments direct = tensor_stats(half);
    const TensorMoments widened = tensor_stats(converted(half, DType::kF32));
    EXPECT_EQ(bits_of(direct.m2), bits_of(widened.m2));
    EXPECT_EQ(bits_of(direct.sum), bits_of(widened.sum));
    EXPECT_EQ(direct.amin_nonzero, widened.amin_nonzero);
    EXPECT_EQ(direct.min, widened.min);
  }
}

/// Central moments by two loops in long double.
struct CentralMoments {
  explicit CentralMoments(const std::vector<float>& values) {
    const Reference reference(values);
    for (const float x : values) {
      const long double d = static_cast<long double>(x) - reference.mean;
      m2 += d * d;
      m3 += d * d * d;
      m4 += d * d * d * d;
      size += std::abs(d * d * d);
    }
  }
  long double m2 = 0, m3 = 0, m4 = 0;
  long double size = 0;  ///< of the terms of m3, which cancel
};

void expect_moments(const TensorMoments& moments, const CentralMoments& expected) {
  expect_relative(moments.m2, expected.m2, 1e-12);
  EXPECT_NEAR(moments.m3, static_cast<double>(expected.m3), static_cast<double>(expected.size) * 1e-12);
  expect_relative(moments.m4, expected.m4, 1e-12);
}

TEST(TensorStats, HigherMomentsByHand) {
  const Tensor x = Tensor::of<float>({0, 0, 0, 4}, {4});
  const TensorMoments moments = tensor_stats(x, MomentOrder::kFourth);
  EXPECT_EQ(moments.m2, 12.0);  // deviations -1, -1, -1, 3
  EXPECT_EQ(moments.m3, 24.0);
  EXPECT_EQ(moments.m4, 84.0);
  EXPECT_EQ(tensor_stats(x).m3, 0.0) << "only when asked for";
  EXPECT_EQ(tensor_stats(x).m2, 12.0);
}

TEST(TensorStats, HigherMomentsEqualTheDefinition) {
  for (const std::int64_t length : {1, 2, 15, 17, 2047, 2048, 2049, 10'007}) {
    const std::vector<float> values = sample(length, 31);
    const Tensor x = Tensor::of<float>(std::span<const float>(values), {length});
    expect_moments(tensor_stats(x, MomentOrder::kFourth), CentralMoments(values));
  }
}

TEST(TensorStats, HigherMomentsOfPartsWithUnequalMeansMerge) {
  std::vector<float> all;
  TensorMoments merged;
  float centre = 0;
  for (const std::int64_t length : {300, 1, 0, 5000, 77}) {
    std::vector<float> part = sample(length, static_cast<unsigned>(40 + length));
    for (float& x : part) x += centre;
    centre = centre * -2 + 10;
    merged.merge(
        tensor_stats(Tensor::of<float>(std::span<const float>(part), {length}), MomentOrder::kFourth));
    all.insert(all.end(), part.begin(), part.end());
  }
  expect_moments(merged, CentralMoments(all));
}

TEST(TensorStats, HigherMomentsLeaveOutWhatIsNotFinite) {
  const Tensor x = Tensor::of<float>({0, kNaN, 0, kInf, 0, 4, -kInf}, {7});
  const TensorMoments moments = tensor_stats(x, MomentOrder::kFourth);
  EXPECT_EQ(moments.m3, 24.0);
  EXPECT_EQ(moments.m4, 84.0);
}

TEST(TensorStats, RecentredMomentsAreSumsAboutTheOtherCentre) {
  const TensorMoments moments = tensor_stats(Tensor::of<float>({0, 0, 0, 4}, {4}), MomentOrder::kFourth);
  const CentredMoments about_three = recentred(moments, moments.mean - 3);  // deviations -3, -3, -3, 1
  EXPECT_EQ(about_three.m2, 28.0);
  EXPECT_EQ(about_three.m3, -80.0);
  EXPECT_EQ(about_three.m4, 244.0);
  EXPECT_EQ(recentred(TensorMoments(), 5.0).m4, 0.0);
}

TEST(TensorStats, PaddingIsNotRead) {
  const PaddedMatrix<float> x({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, {3, 4}, 8, kNaN);
  const TensorMoments moments = tensor_stats(x.view());
  EXPECT_EQ(moments.numel, 12U);
  EXPECT_EQ(moments.nan, 0U);
  EXPECT_EQ(moments.sum, 78.0);
  EXPECT_DOUBLE_EQ(moments.m2, 143.0);  // (12^2 - 1) / 12 * 12
}

/// Two valid rows of three, the third holding NaN: the view has two rows.
TEST(TensorStats, InvalidRowsAreNotRead) {
  const PaddedMatrix<float> x({1, 2, 3, 4, 5, 6, 7, 8, kNaN, kNaN, kNaN, kNaN}, {3, 4}, 8, kNaN);
  const TensorView valid(x.view().data(), DType::kF32, {2, 4}, {}, {}, 8);
  EXPECT_EQ(tensor_stats(valid).nan, 0U);
  EXPECT_EQ(tensor_stats(valid).sum, 36.0);
}

TEST(TensorStats, RefusesCodesAndDoubles) {
  EXPECT_THROW(tensor_stats(Tensor(DType::kE4M3, {2})), Error);
  EXPECT_THROW(tensor_stats(Tensor(DType::kF64, {2})), Error);
  const float value = 1;
  EXPECT_THROW(tensor_stats(TensorView(&value, DType::kF32, {1}, {DeviceKind::kCuda, 0})), Error);
}

}  // namespace
}  // namespace amaxscope::test
