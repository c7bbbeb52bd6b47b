#include "runtime/stats/rounding_sums.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

namespace amaxscope {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

TEST(RoundingSums, MeanAndItsSignificance) {
  const std::array<float, 5> errors = {0.25F, 0.5F, kNaN, 0.25F, 0.0F};
  const RoundingSums sums = rounding_sums(errors, errors, {});
  EXPECT_EQ(rounding_mean(sums), 0.25);
  // Variance 1/32, four of them: 0.25 / sqrt(1/32 / 4).
  EXPECT_DOUBLE_EQ(*rounding_z(sums), 0.25 / std::sqrt(1.0 / 128));
  EXPECT_FALSE(rounding_correlation(sums).has_value());
}

TEST(RoundingSums, CorrelationOfPairs) {
  const std::array<float, 4> before = {0.1F, -0.2F, 0.3F, kNaN};
  const std::array<float, 4> same = {0.1F, -0.2F, 0.3F, 0.4F};
  const std::array<float, 4> opposite = {-0.1F, 0.2F, -0.3F, 0.4F};
  EXPECT_NEAR(*rounding_correlation(rounding_sums(same, same, before)), 1.0, 1e-12);
  EXPECT_NEAR(*rounding_correlation(rounding_sums(opposite, opposite, before)), -1.0, 1e-12);
  EXPECT_EQ(rounding_sums(same, same, before).pairs, 3.0);
  // Another number of samples is another tensor.
  EXPECT_EQ(rounding_sums(same, same, std::array<float, 2>{}).pairs, 0.0);
}

// The mean is of the errors as they are, the correlation of those away from zero.
TEST(RoundingSums, SignsDoNotHideThatMagnitudesAreRoundedAlike) {
  const std::array<float, 4> outward = {0.1F, -0.2F, 0.3F, -0.4F};
  const std::array<float, 4> errors = {-0.1F, -0.2F, 0.3F, 0.4F};
  const RoundingSums sums = rounding_sums(errors, outward, outward);
  EXPECT_NEAR(*rounding_correlation(sums), 1.0, 1e-12);
  EXPECT_NEAR(*rounding_mean(sums), 0.1, 1e-7);
}

TEST(RoundingSums, AddUp) {
  const std::array<float, 2> first = {0.5F, 0.25F};
  const std::array<float, 2> second = {-0.5F, 0.0F};
  RoundingSums sums = rounding_sums(first, first, second);
  sums += rounding_sums(second, second, first);
  EXPECT_EQ(sums.count, 4.0);
  EXPECT_EQ(sums.pairs, 4.0);
  EXPECT_EQ(rounding_mean(sums), 0.0625);
  // Pairs (-1/2, 1/2), (0, 1/4), (1/2, -1/2), (1/4, 0): both means 1/16, covariance -1/8 - 1/256.
  EXPECT_DOUBLE_EQ(*rounding_correlation(sums), (-0.125 - 1.0 / 256) / (9.0 / 64 - 1.0 / 256));
}

TEST(RoundingSums, NothingWithoutASpread) {
  const std::array<float, 2> constant = {0.25F, 0.25F};
  const RoundingSums sums = rounding_sums(constant, constant, constant);
  EXPECT_EQ(rounding_mean(sums), 0.25);
  EXPECT_FALSE(rounding_z(sums).has_value());
  EXPECT_FALSE(rounding_correlation(sums).has_value());
  EXPECT_FALSE(rounding_mean(RoundingSums{}).has_value());
}

}  // namespace
}  // namespace amaxscope
