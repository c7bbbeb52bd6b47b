#include "runtime/stats/magnitude_accumulators.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/runtime/stats/simulated_reduction.hpp"

namespace amaxscope {
namespace {

using ::testing::ElementsAre;
using testing::flags_of;
using testing::names_of;
using testing::reduce_over;
using ::testing::UnorderedElementsAre;
using testing::value_of;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

using Ranks = std::vector<std::vector<std::vector<float>>>;  // micro-batches of each rank

TensorView view(const std::vector<float>& values) {
  return {values.data(), DType::kF32, Shape{static_cast<std::int64_t>(values.size())}};
}

void feed(HistogramAccumulator& into, const std::vector<float>& values) { into.feed(view(values)); }
void feed(OutlierAccumulator& into, const std::vector<float>& values) {
  into.feed(tensor_stats(view(values)), view(values));
}

template <class Accumulator>
std::vector<StatValue> reduce(const Ranks& ranks, int parameter) {
  std::vector<std::unique_ptr<Accumulator>> owned;
  std::vector<const StatAccumulator*> pointers;
  for (const auto& microbatches : ranks) {
    owned.push_back(std::make_unique<Accumulator>(parameter));
    for (const auto& values : microbatches) feed(*owned.back(), values);
    pointers.push_back(owned.back().get());
  }
  return reduce_over(pointers);
}

double total(const std::vector<StatValue>& values) {
  double sum = 0;
  for (const StatValue& value : values) sum += value.value;
  return sum;
}

TEST(HistogramAccumulator, NanInfAndZeroOverTwoRanks) {
  for (const Ranks& ranks :
       {Ranks{{{kNan, kInf, 0}}, {{1, 1.5F, -2}}}, Ranks{{{1, kNan}, {0}}, {{-2}, {}, {kInf, 1.5F}}}}) {
    const auto values = reduce<HistogramAccumulator>(ranks, 32);
    EXPECT_THAT(names_of(values), UnorderedElementsAre("histogram_zero", "histogram_nan", "histogram_inf",
                                                       "histogram_2^0", "histogram_2^1"));
    EXPECT_EQ(value_of(values, "histogram_nan"), 1.0);
    EXPECT_EQ(value_of(values, "histogram_inf"), 1.0);
    EXPECT_EQ(value_of(values, "histogram_zero"), 1.0);
    EXPECT_EQ(value_of(values, "histogram_2^0"), 2.0);
    EXPECT_EQ(value_of(values, "histogram_2^1"), 1.0);
    EXPECT_EQ(total(values), 6.0);
  }
}

TEST(HistogramAccumulator, BinsAreThoseFromTheHighestDown) {
  // 2^3, 2^1 (twice), 2^-4, 2^-149.
  const Ranks ranks = {{{8, 2, 3}}, {{0x1p-4F, 0x1p-149F}}};
  const auto four = reduce<HistogramAccumulator>(ranks, 4);  // 2^3 to 2^0
  EXPECT_THAT(names_of(four), ElementsAre("histogram_zero", "histogram_nan", "histogram_inf",
                                          "histogram_below_2^0", "histogram_2^1", "histogram_2^3"));
  EXPECT_EQ(value_of(four, "histogram_below_2^0"), 2.0);
  EXPECT_EQ(value_of(four, "histogram_2^1"), 2.0);
  EXPECT_EQ(total(four), 5.0);
  const auto all = reduce<HistogramAccumulator>(ranks, 1000);
  EXPECT_EQ(value_of(all, "histogram_2^-149"), 1.0);
  EXPECT_EQ(total(all), 5.0);
}

TEST(HistogramAccumulator, BinsAreDetailsAndTheRestIsNot) {
  const auto values = reduce<HistogramAccumulator>({{{8, 1, 0}}}, 1);
  ASSERT_EQ(values.size(), 5U);
  for (const StatValue& value : values) {
    EXPECT_EQ(value.detail, value.name.find('^') != std::string::npos) << value.name;
  }
}

TEST(HistogramAccumulator, NeverEmpty) {
  EXPECT_THAT(names_of(reduce<HistogramAccumulator>({{{}}, {}}, 8)),
              ElementsAre("histogram_zero", "histogram_nan", "histogram_inf"));
  EXPECT_EQ(total(reduce<HistogramAccumulator>({{{kNan, kNan}}}, 8)), 2.0);
  EXPECT_EQ(value_of(reduce<HistogramAccumulator>({{{0, -0.0F}}}, 8), "histogram_zero"), 2.0);
}

TEST(HistogramAccumulator, ResetForgets) {
  HistogramAccumulator counts(8);
  feed(counts, {1, 2, kNan});
  EXPECT_TRUE(counts.ran());
  counts.reset();
  EXPECT_FALSE(counts.ran());
  EXPECT_EQ(total(reduce_over({&counts})), 0.0);
}

/// By the definition, in double loops, for values on bf16's grid.
std::pair<double, double> outliers_of(const std::vector<double>& values, double threshold) {
  double squares = 0;
  for (const double x : values) squares += x * x;
  const double rms = std::sqrt(squares / static_cast<double>(values.size()));
  double count = 0;
  for (const double x : values) count += std::abs(x) > threshold * rms ? 1 : 0;
  return {count, 100 * count / static_cast<double>(values.size())};
}

TEST(OutlierAccumulator, TheRmsIsThatOfAllRanks) {
  // rms 22: nothing of the first rank is an outlier of the whole, though its 2 is one of its own rms (1.2).
  const std::vector<double> all = {1, -1, 1, 2, 1, 1, 1, 64, 1, 1, -60, 1, 1, 1, 1, 1};
  const Ranks ranks = {{{1, -1, 1}, {2, 1, 1, 1}}, {{64, 1, 1, -60, 1}, {1, 1, 1, 1}}};
  for (const int threshold : {1, 2, 3}) {
    const auto [count, share] = outliers_of(all, threshold);
    const auto values = reduce<OutlierAccumulator>(ranks, threshold);
    const std::string name = "outliers_threshold_" + std::to_string(threshold);
    EXPECT_THAT(names_of(values), ElementsAre(name, name + "%"));
    EXPECT_EQ(value_of(values, name), count);
    EXPECT_DOUBLE_EQ(*value_of(values, name + "%"), share);
  }
  EXPECT_EQ(outliers_of(all, 2).first, 2);
  EXPECT_EQ(outliers_of(all, 3).first, 0);
}

TEST(OutlierAccumulator, OneInAThousand) {
  std::vector<float> values(1000, 0.5F);
  values[17] = -100;  // rms sqrt((999 * 0.25 + 10000) / 1000) = 3.2
  EXPECT_EQ(value_of(reduce<OutlierAccumulator>({{values}}, 10), "outliers_threshold_10"), 1.0);
  EXPECT_DOUBLE_EQ(*value_of(reduce<OutlierAccumulator>({{values}}, 10), "outliers_threshold_10%"), 0.1);
  EXPECT_EQ(value_of(reduce<OutlierAccumulator>({{values}}, 40), "outliers_threshold_40"), 0.0);
}

TEST(OutlierAccumulator, WhatIsNotFiniteSpoilsNothing) {
  const auto values = reduce<OutlierAccumulator>({{{kNan, 1, 1, 1}}, {{kInf, 1, 4}}}, 1);
  // Five finite ones, rms 2: the 4.
  EXPECT_EQ(value_of(values, "outliers_threshold_1"), 1.0);
  EXPECT_EQ(value_of(values, "outliers_threshold_1%"), 20.0);
}

TEST(OutlierAccumulator, ZerosAndNothing) {
  const auto zeros = reduce<OutlierAccumulator>({{{0, 0}}, {{}}}, 10);
  EXPECT_EQ(value_of(zeros, "outliers_threshold_10"), 0.0);
  EXPECT_THAT(flags_of(zeros, "outliers_threshold_10%"), ElementsAre("zero"));
  EXPECT_TRUE(reduce<OutlierAccumulator>({{{}}, {{kNan}}}, 10).empty());
  // All zero on one rank, not on the other: zeros count as elements.
  EXPECT_EQ(value_of(reduce<OutlierAccumulator>({{{0, 0, 0}}, {{4}}}, 1), "outliers_threshold_1%"), 25.0);
}

}  // namespace
}  // namespace amaxscope
