#include "report/distance.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

namespace amaxscope::report {
namespace {

using Stats = std::map<std::string, double>;
constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

double apart(const std::string& stat, double a, double b, const Stats& in_a = {}, const Stats& in_b = {}) {
  return distance(measure_of(base_name(stat)), a, b, in_a, in_b);
}

TEST(Distance, NamesLoseRecipeDirectionAndNumber) {
  EXPECT_EQ(base_name("mse"), "mse");
  EXPECT_EQ(base_name("mxfp8_mse_columnwise"), "mse");
  EXPECT_EQ(base_name("fp8_current_scaling_sqnr"), "sqnr");
  EXPECT_EQ(base_name("histogram_2^-3"), "histogram");
  EXPECT_EQ(base_name("outlier_channel_2_energy%"), "outlier_channel__energy%");
  EXPECT_EQ(base_name("outlier_row_12_since"), "outlier_row__since");
  EXPECT_EQ(base_name("l2_norm"), "l2_norm") << "a number that is part of the name stays";
}

TEST(Distance, MagnitudesAreComparedByTheirRatio) {
  EXPECT_DOUBLE_EQ(apart("cur_amax", 2, 2.5), 0.2);
  EXPECT_DOUBLE_EQ(apart("cur_amax", 2e-30, 2.5e-30), 0.2) << "whatever their size";
  EXPECT_DOUBLE_EQ(apart("grad_norm", 1, 2), 0.5);
}

TEST(Distance, ValuesAroundZeroAreComparedByTheTensorsSize) {
  const Stats a = {{"mean", 1e-9}, {"rms", 4}};
  const Stats b = {{"mean", -1e-9}, {"rms", 5}};
  EXPECT_DOUBLE_EQ(apart("mean", 1e-9, -1e-9, a, b), 2e-9 / 5);
  EXPECT_DOUBLE_EQ(apart("mean", 1, 3), 2.0 / 3) << "by themselves where nothing says the size";
}

TEST(Distance, PercentagesDecibelsAndBins) {
  EXPECT_DOUBLE_EQ(apart("underflows%", 50, 51), 1);
  EXPECT_DOUBLE_EQ(apart("sqnr", 31.5, 25.5), 6);
  const Stats bins = {{"histogram_2^0", 60}, {"histogram_2^1", 30}, {"histogram_zero", 10}, {"max", 3}};
  EXPECT_DOUBLE_EQ(apart("histogram_2^0", 60, 55, bins, bins), 0.05);
}

TEST(Distance, CountsMustBeEqualAndIdsNeed) {
  EXPECT_EQ(apart("numel", 100, 100), 0);
  EXPECT_EQ(apart("numel", 100, 101), kInf);
  EXPECT_EQ(apart("nan", 0, 1), kInf);
  EXPECT_EQ(apart("outlier_channel_1_id", 3, 77), 0) << "which channel leads is decided by a hair";
  EXPECT_EQ(apart("outlier_row_1_since", 20, 25), 0);
  EXPECT_EQ(apart("outlier_channel_1_tp_rank", 0, 1), 0);
}

TEST(Distance, WhatIsNotFinite) {
  EXPECT_EQ(apart("cur_amax", kNan, kNan), 0);
  EXPECT_EQ(apart("cur_amax", kInf, kInf), 0);
  EXPECT_EQ(apart("cur_amax", 1, kNan), kInf);
  EXPECT_EQ(apart("sqnr", kInf, 30), kInf);
}

}  // namespace
}  // namespace amaxscope::report
