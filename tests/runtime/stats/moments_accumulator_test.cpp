#include "runtime/stats/moments_accumulator.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/error.hpp"
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

MomentsAccumulator every_statistic() { return MomentsAccumulator(MomentsAccumulator::known_names()); }

void feed(MomentsAccumulator& accumulator, std::vector<float> values) {
  const auto count = static_cast<std::int64_t>(values.size());
  accumulator.feed(tensor_stats(TensorView(values.data(), DType::kF32, Shape{count}), accumulator.order()));
}

/// Micro-batches of each rank.
using Ranks = std::vector<std::vector<std::vector<float>>>;

std::vector<StatValue> reduce(const Ranks& ranks,
                              std::vector<std::string> names = MomentsAccumulator::known_names()) {
  std::vector<std::unique_ptr<MomentsAccumulator>> accumulators;
  std::vector<const StatAccumulator*> pointers;
  for (const auto& microbatches : ranks) {
    accumulators.push_back(std::make_unique<MomentsAccumulator>(names));
    for (const auto& values : microbatches) feed(*accumulators.back(), values);
    pointers.push_back(accumulators.back().get());
  }
  return reduce_over(pointers);
}

TEST(MomentsAccumulator, HandWorkedValues) {
  const auto values = reduce({{{-3.0F, 0.0F, 4.0F, 0.5F}}});
  EXPECT_EQ(value_of(values, "min"), -3.0);
  EXPECT_EQ(value_of(values, "max"), 4.0);
  EXPECT_EQ(value_of(values, "mean"), 0.375);
  EXPECT_EQ(value_of(values, "l1_norm"), 7.5);
  EXPECT_DOUBLE_EQ(*value_of(values, "l2_norm"), std::sqrt(25.25));
  EXPECT_DOUBLE_EQ(*value_of(values, "rms"), std::sqrt(25.25 / 4));
  // deviations -3.375, -0.375, 3.625, 0.125; squares 11.390625 + 0.140625 + 13.140625 + 0.015625 = 24.6875
  EXPECT_DOUBLE_EQ(*value_of(values, "std"), std::sqrt(24.6875 / 3));
  EXPECT_EQ(value_of(values, "cur_amax"), 4.0);
  EXPECT_EQ(value_of(values, "dynamic_range"), 3.0);  // log2(4 / 0.5)
  EXPECT_EQ(value_of(values, "numel"), 4.0);
  EXPECT_EQ(value_of(values, "nonzero"), 3.0);
  EXPECT_EQ(value_of(values, "nan"), 0.0);
  EXPECT_EQ(value_of(values, "inf"), 0.0);
  EXPECT_EQ(value_of(values, "min_finite"), -3.0);
  EXPECT_EQ(value_of(values, "max_finite"), 4.0);
  EXPECT_EQ(value_of(values, "amax_finite"), 4.0);
  EXPECT_DOUBLE_EQ(*value_of(values, "peak_rms"), 4 / std::sqrt(25.25 / 4));
  EXPECT_EQ(values.size(), MomentsAccumulator::known_names().size());
}

struct VarianceCase {
  std::vector<std::vector<float>> groups;
  double variance;
};

// Variances of the concatenated data, worked out by hand.
const std::vector<VarianceCase> kUnequalMeans = {
    {{{0, 1, 2, 3}, {10, 11, 12, 13}}, 30.0},
    {{{1, 2}, {1, 2, 3, 4}}, 41.0 / 30.0},
    {{{0, 0, 0, 0}, {2, 2, 2, 2}}, 8.0 / 7.0},
    // means 1.5, 11.5, 101.5: 3 * 5 within, 4 * (36.667^2 + 26.667^2 + 63.333^2) between, over 11
    {{{0, 1, 2, 3}, {10, 11, 12, 13}, {100, 101, 102, 103}}, (15.0 + 72800.0 / 3.0) / 11.0},
};

TEST(MomentsAccumulator, VarianceOfUnequalMeansOverRanks) {
  for (const VarianceCase& golden : kUnequalMeans) {
    Ranks ranks;
    for (const auto& group : golden.groups) ranks.push_back({group});
    EXPECT_NEAR(*value_of(reduce(ranks), "std"), std::sqrt(golden.variance), 1e-12);
  }
}

TEST(MomentsAccumulator, VarianceOfUnequalMeansOverMicrobatches) {
  for (const VarianceCase& golden : kUnequalMeans) {
    EXPECT_NEAR(*value_of(reduce({golden.groups}), "std"), std::sqrt(golden.variance), 1e-12);
  }
}

TEST(MomentsAccumulator, RanksAndMicrobatchesTogether) {
  const auto values = reduce({{{0, 1}, {100}}, {{}, {2, 3, 10}}, {{11, 12, 13, 101}, {102, 103}}});
  EXPECT_NEAR(*value_of(values, "std"), std::sqrt((15.0 + 72800.0 / 3.0) / 11.0), 1e-12);
  EXPECT_EQ(value_of(values, "numel"), 12.0);
}

TEST(MomentsAccumulator, StdSurvivesAMeanAMillionTimesLarger) {
  // 2^20 +- 1 on one rank, 2^20 + 2 +- 1 on the other: deviations from 2^20 + 1 are 0, -2, 2, 0.
  const float base = 0x1p20F;
  const auto values = reduce({{{base + 1, base - 1}}, {{base + 3, base + 1}}});
  EXPECT_DOUBLE_EQ(*value_of(values, "std"), std::sqrt(8.0 / 3.0));
  EXPECT_EQ(value_of(values, "mean"), 1048577.0);
}

TEST(MomentsAccumulator, OneElementHasNoStdAndSpoilsNobodyElses) {
  const auto one = reduce({{{5.0F}}});
  EXPECT_FALSE(value_of(one, "std").has_value());
  EXPECT_EQ(value_of(one, "mean"), 5.0);
  EXPECT_DOUBLE_EQ(*value_of(reduce({{{5.0F}}, {{1.0F, 3.0F}}}), "std"), 2.0);
  EXPECT_DOUBLE_EQ(*value_of(reduce({{{1.0F}}, {{3.0F}}}), "std"), std::sqrt(2.0));
}

/// Skewness and excess kurtosis by the definition, in two loops.
std::pair<double, double> shape_of(const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  double mean = 0;
  for (const double x : values) mean += x / n;
  double m2 = 0;
  double m3 = 0;
  double m4 = 0;
  for (const double x : values) {
    const double d = x - mean;
    m2 += d * d / n;
    m3 += d * d * d / n;
    m4 += d * d * d * d / n;
  }
  return {m3 / std::pow(m2, 1.5), m4 / (m2 * m2) - 3};
}

TEST(MomentsAccumulator, SkewnessAndKurtosisByHand) {
  // 0 0 0 4: deviations -1 -1 -1 3; moments 3, 6, 21. Skewness 6 / 3^1.5, kurtosis 21 / 9 - 3.
  for (const Ranks& ranks :
       {Ranks{{{0, 0, 0, 4}}}, Ranks{{{0, 0}, {0}}, {{4}}}, Ranks{{{0}}, {{}}, {{0, 4}, {0}}}}) {
    const auto values = reduce(ranks, {"skewness", "kurtosis"});
    EXPECT_DOUBLE_EQ(*value_of(values, "skewness"), 6 / std::sqrt(27.0));
    EXPECT_DOUBLE_EQ(*value_of(values, "kurtosis"), 21.0 / 9 - 3);
  }
}

TEST(MomentsAccumulator, ShapeOfRanksWithUnequalMeansIsThatOfTheConcatenation) {
  const std::vector<double> all = {0, 1, 2, 30, 100, 101, 102, 103, -7, -7.5, 2000};
  const auto [skewness, kurtosis] = shape_of(all);
  const auto values = reduce({{{0, 1}, {2, 30}}, {{}}, {{100, 101, 102, 103}}, {{-7, -7.5F}, {2000}}},
                             {"std", "skewness", "kurtosis"});
  EXPECT_NEAR(*value_of(values, "skewness"), skewness, 1e-12);
  EXPECT_NEAR(*value_of(values, "kurtosis"), kurtosis, 1e-11);
}

TEST(MomentsAccumulator, WhatDoesNotVaryHasNoShape) {
  for (const Ranks& ranks : {Ranks{{{5}}}, Ranks{{{0.1F, 0.1F}}, {{0.1F}}}, Ranks{{{0, -0.0F}}}}) {
    EXPECT_TRUE(reduce(ranks, {"skewness", "kurtosis"}).empty());
  }
  EXPECT_THAT(names_of(reduce({{{}}}, {"skewness"})), ElementsAre("numel"));
}

TEST(MomentsAccumulator, ShapeIsNanWithWhatIsNotFinite) {
  for (const float odd : {kNan, kInf}) {
    const auto values = reduce({{{1, 2}}, {{odd, 7}}}, {"skewness", "kurtosis", "peak_rms"});
    for (const char* name : {"skewness", "kurtosis", "peak_rms"}) {
      EXPECT_TRUE(std::isnan(value_of(values, name).value())) << name;
    }
    EXPECT_EQ(value_of(values, "amax_finite"), 7.0);
  }
}

TEST(MomentsAccumulator, PeakOverRmsOfTheWholeTensor) {
  // 3 of one rank over the rms of all four: sqrt(12 / 4).
  EXPECT_DOUBLE_EQ(*value_of(reduce({{{1, 1}}, {{-3, 1}}}, {"peak_rms"}), "peak_rms"), std::sqrt(3.0));
  const auto zero = reduce({{{0, 0}}, {{}}}, {"peak_rms"});
  EXPECT_EQ(value_of(zero, "peak_rms"), 0.0);
  EXPECT_THAT(flags_of(zero, "peak_rms"), ElementsAre("zero"));
}

TEST(MomentsAccumulator, FiniteExtremesOnRequest) {
  const auto values = reduce({{{1, -2}}, {{0.5F}}}, {"min_finite", "amax_finite", "max_finite"});
  EXPECT_THAT(names_of(values), ElementsAre("min_finite", "amax_finite", "max_finite"));
  EXPECT_EQ(value_of(values, "min_finite"), -2.0);
  EXPECT_EQ(value_of(values, "max_finite"), 1.0);
  EXPECT_THAT(names_of(reduce({{{kNan}}}, {"min_finite", "max_finite", "amax_finite"})),
              UnorderedElementsAre("nan", "inf"));
}

TEST(MomentsAccumulator, AllZero) {
  const auto values = reduce({{{0.0F, -0.0F}}, {{0.0F, 0.0F}}});
  EXPECT_EQ(value_of(values, "dynamic_range"), 0.0);
  EXPECT_THAT(flags_of(values, "dynamic_range"), ElementsAre("zero"));
  EXPECT_EQ(value_of(values, "cur_amax"), 0.0);
  EXPECT_EQ(value_of(values, "min"), 0.0);
  EXPECT_FALSE(std::signbit(*value_of(values, "min")));
  EXPECT_EQ(value_of(values, "std"), 0.0);
  EXPECT_EQ(value_of(values, "nonzero"), 0.0);
}

TEST(MomentsAccumulator, ZerosOfOneRankOrMicrobatchDoNotChangeTheRange) {
  for (const Ranks& ranks : {Ranks{{{0.0F, 0.0F}}, {{8.0F, 16.0F}}}, Ranks{{{8.0F, 16.0F}, {0.0F, 0.0F}}}}) {
    const auto values = reduce(ranks);
    EXPECT_EQ(value_of(values, "dynamic_range"), 1.0);
    EXPECT_THAT(flags_of(values, "dynamic_range"), ElementsAre());
  }
}

TEST(MomentsAccumulator, NanOfAnyRankOrMicrobatchWins) {
  for (const Ranks& ranks :
       {Ranks{{{kNan, 1.0F, -9.0F}}, {{2.0F, 7.0F}}}, Ranks{{{2.0F, 7.0F}}, {{1.0F, kNan, -9.0F}}},
        Ranks{{{kNan, 1.0F, -9.0F}, {2.0F, 7.0F}}}, Ranks{{{2.0F, 7.0F}, {1.0F, kNan, -9.0F}}}}) {
    const auto values = reduce(ranks, {"min", "max", "cur_amax", "mean", "std", "l1_norm", "l2_norm", "rms"});
    for (const char* name : {"min", "max", "cur_amax", "mean", "std", "l1_norm", "l2_norm", "rms"}) {
      EXPECT_TRUE(std::isnan(value_of(values, name).value())) << name;
    }
    EXPECT_EQ(value_of(values, "nan"), 1.0);
    EXPECT_EQ(value_of(values, "inf"), 0.0);
    EXPECT_EQ(value_of(values, "min_finite"), -9.0);
    EXPECT_EQ(value_of(values, "max_finite"), 7.0);
    EXPECT_EQ(value_of(values, "amax_finite"), 9.0);
  }
}

TEST(MomentsAccumulator, InfMakesNormsInfAndStdNan) {
  const auto values = reduce({{{kInf, 1.0F}}, {{-4.0F, 2.0F}}});
  EXPECT_EQ(value_of(values, "max"), kInf);
  EXPECT_EQ(value_of(values, "min"), -4.0);
  EXPECT_EQ(value_of(values, "cur_amax"), kInf);
  EXPECT_EQ(value_of(values, "mean"), kInf);
  EXPECT_EQ(value_of(values, "l1_norm"), kInf);
  EXPECT_EQ(value_of(values, "l2_norm"), kInf);
  EXPECT_EQ(value_of(values, "rms"), kInf);
  EXPECT_TRUE(std::isnan(value_of(values, "std").value()));
  EXPECT_EQ(value_of(values, "dynamic_range"), 2.0);  // 4 over 1
  EXPECT_EQ(value_of(values, "inf"), 1.0);
  EXPECT_EQ(value_of(values, "amax_finite"), 4.0);
  EXPECT_EQ(value_of(values, "min_finite"), -4.0);
  EXPECT_EQ(value_of(values, "max_finite"), 2.0);
}

TEST(MomentsAccumulator, MeanTakesTheSignOfInf) {
  EXPECT_EQ(value_of(reduce({{{-kInf, 1.0F}}}), "mean"), -kInf);
  EXPECT_TRUE(std::isnan(value_of(reduce({{{-kInf}}, {{kInf}}}), "mean").value()));
}

TEST(MomentsAccumulator, NothingFiniteLeavesOutWhatItCannotSay) {
  const auto values = reduce({{{kNan, kInf}}}, {"max", "dynamic_range"});
  EXPECT_THAT(names_of(values), UnorderedElementsAre("max", "nan", "inf"));
  EXPECT_TRUE(std::isnan(value_of(values, "max").value()));
}

TEST(MomentsAccumulator, EmptyShardAddsNothing) {
  const auto values = reduce({{{}}, {{-3.0F, 2.0F}}});
  EXPECT_EQ(value_of(values, "min"), -3.0);
  EXPECT_EQ(value_of(values, "max"), 2.0);
  EXPECT_EQ(value_of(values, "numel"), 2.0);
  EXPECT_EQ(value_of(values, "mean"), -0.5);
}

TEST(MomentsAccumulator, EmptyEverywhereReportsOnlyItsCount) {
  const auto values = reduce({{{}}, {{}}}, {"min", "max", "mean", "std"});
  EXPECT_THAT(names_of(values), ElementsAre("numel"));
  EXPECT_EQ(values[0].value, 0.0);
}

TEST(MomentsAccumulator, AnEmptyTensorCountsAsRun) {
  MomentsAccumulator accumulator = every_statistic();
  EXPECT_FALSE(accumulator.ran());
  accumulator.feed(tensor_stats(TensorView(nullptr, DType::kF32, Shape{0, 8})));
  EXPECT_TRUE(accumulator.ran());
}

TEST(MomentsAccumulator, ResetForgetsEverything) {
  MomentsAccumulator accumulator = every_statistic();
  feed(accumulator, {1000.0F, kNan});
  accumulator.reset();
  EXPECT_FALSE(accumulator.ran());
  feed(accumulator, {1.0F, 3.0F});
  const auto values = reduce_over({&accumulator});
  EXPECT_EQ(value_of(values, "max"), 3.0);
  EXPECT_EQ(value_of(values, "numel"), 2.0);
}

TEST(MomentsAccumulator, CountsBeyondTheFloatRangeAreExact) {
  TensorMoments many;
  many.numel = 16'777'216;
  many.nonzero = 16'777'216;
  many.min = many.max = many.amax_finite = many.amin_nonzero = 1.0F;
  many.sum = many.l1 = many.sum_squares = 16'777'216.0;
  many.mean = 1.0;
  MomentsAccumulator accumulator({"numel", "nonzero", "l1_norm"});
  accumulator.feed(many);
  feed(accumulator, {1.0F});
  const auto values = reduce_over({&accumulator});
  EXPECT_EQ(value_of(values, "numel"), 16'777'217.0);
  EXPECT_EQ(value_of(values, "nonzero"), 16'777'217.0);
  EXPECT_EQ(value_of(values, "l1_norm"), 16'777'217.0);
}

TEST(MomentsAccumulator, HalfPrecisionInputsDoNotOverflowOrRound) {
  MomentsAccumulator halves({"l2_norm"});
  for (const float value : {300.0F, 400.0F}) {
    halves.feed(tensor_stats(Tensor::of<F16>({to_f16(value)}, Shape{1}).view()));
  }
  EXPECT_EQ(value_of(reduce_over({&halves}), "l2_norm"), 500.0);

  MomentsAccumulator ones({"l1_norm", "mean", "std"});
  const std::vector<BF16> values(5120, to_bf16(1.0F));
  ones.feed(tensor_stats(Tensor::of<BF16>(values, Shape{5120}).view()));
  const auto reduced = reduce_over({&ones});
  EXPECT_EQ(value_of(reduced, "l1_norm"), 5120.0);
  EXPECT_EQ(value_of(reduced, "mean"), 1.0);
  EXPECT_EQ(value_of(reduced, "std"), 0.0);
}

TEST(MomentsAccumulator, LargeFloatsHaveAFiniteNorm) {
  EXPECT_NEAR(*value_of(reduce({{{1e30F, 1e30F}}}), "l2_norm"), std::sqrt(2.0) * double{1e30F}, 1e17);
}

TEST(MomentsAccumulator, SecondMomentTravelsOnlyWhenItIsAskedFor) {
  EXPECT_EQ(MomentsAccumulator({"mean", "l2_norm", "dynamic_range"}).moment_words(), 0U);
  EXPECT_EQ(MomentsAccumulator({"std"}).moment_words(), 1U);
  EXPECT_EQ(MomentsAccumulator({"std"}).order(), MomentOrder::kSecond);
  EXPECT_EQ(MomentsAccumulator({"kurtosis"}).moment_words(), 3U);
  EXPECT_EQ(MomentsAccumulator({"min", "skewness"}).order(), MomentOrder::kFourth);
}

TEST(MomentsAccumulator, IdNamesWhatIsAskedFor) {
  EXPECT_EQ(MomentsAccumulator({"min", "std"}).id(), "moments min std");
  EXPECT_NE(MomentsAccumulator({"min"}).id(), MomentsAccumulator({"max"}).id());
}

TEST(MomentsAccumulator, UnknownNameIsRefused) {
  try {
    MomentsAccumulator accumulator({"median"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("\"median\""));
  }
}

TEST(BlockRangeAccumulator, NamesAsTheLogHasThem) {
  EXPECT_EQ(BlockRangeAccumulator(32, 1, true).stat_name(),
            "max_blockwise_dynamic_range_block_size_32_dims_1_max_over_orientations");
  EXPECT_EQ(BlockRangeAccumulator(4, 2, false).stat_name(),
            "max_blockwise_dynamic_range_block_size_4_dims_2");
}

TEST(BlockRangeAccumulator, LargestOverRanksAndMicrobatches) {
  BlockRangeAccumulator a(32, 1, false);
  BlockRangeAccumulator b(32, 1, false);
  a.feed(1.0);
  a.feed(5.5);
  a.feed(2.0);
  b.feed(0.0);
  const auto values = reduce_over({&b, &a});
  ASSERT_EQ(values.size(), 1U);
  EXPECT_EQ(values[0].value, 5.5);
}

TEST(BlockRangeAccumulator, NanWinsInAnyOrder) {
  for (const bool first : {true, false}) {
    BlockRangeAccumulator a(32, 1, false);
    BlockRangeAccumulator b(32, 1, false);
    if (first) a.feed(static_cast<double>(kNan));
    a.feed(3.0);
    if (!first) a.feed(static_cast<double>(kNan));
    b.feed(9.0);
    EXPECT_TRUE(std::isnan(reduce_over({&a, &b}).at(0).value));
  }
}

TEST(BlockRangeAccumulator, AnInfiniteRangeIsKeptAndNanWinsOverIt) {
  BlockRangeAccumulator a(32, 1, false);
  BlockRangeAccumulator b(32, 1, false);
  a.feed(static_cast<double>(kInf));
  b.feed(3.0);
  EXPECT_EQ(reduce_over({&a, &b}).at(0).value, static_cast<double>(kInf));
  b.feed(static_cast<double>(kNan));
  EXPECT_TRUE(std::isnan(reduce_over({&a, &b}).at(0).value));
}

TEST(BlockRangeAccumulator, EmptyIsNoZero) {
  BlockRangeAccumulator empty(32, 1, false);
  empty.feed(std::nullopt);
  EXPECT_TRUE(empty.ran());
  EXPECT_TRUE(reduce_over({&empty, &empty}).empty());
  BlockRangeAccumulator zero(32, 1, false);
  zero.feed(0.0);
  EXPECT_EQ(reduce_over({&empty, &zero}).at(0).value, 0.0);
  zero.reset();
  EXPECT_TRUE(reduce_over({&zero}).empty());
}

}  // namespace
}  // namespace amaxscope
