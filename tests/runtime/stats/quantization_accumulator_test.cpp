#include "runtime/stats/quantization_accumulator.hpp"

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
using ::testing::IsEmpty;
using testing::names_of;
using testing::reduce_over;
using ::testing::UnorderedElementsAre;
using testing::value_of;

using Flags = std::vector<std::string>;

QuantizationAccumulator every_statistic(OverflowRule rule = OverflowRule::kRoundsPastMaximum) {
  return {"", "", QuantizationAccumulator::known_names(), rule};
}

// x = [3, 4], quantized to [3, 5]: error 1, signal 25, quantized 34, product 29.
QuantizationError small_error() {
  QuantizationError error;
  error.numel = error.compared = 2;
  error.error_squares = 1;
  error.signal_squares = 25;
  error.quantized_squares = 34;
  error.product = 29;
  error.max_error = 1;
  return error;
}

TEST(QuantizationAccumulator, HandWorkedValues) {
  QuantizationAccumulator accumulator = every_statistic();
  QuantizationError error = small_error();
  error.numel = error.compared = 8;
  error.underflows = 1;
  error.overflows = 3;
  error.saturated = 2;
  accumulator.feed(error, 0.25F, {});
  const auto values = reduce_over({&accumulator});
  EXPECT_EQ(value_of(values, "underflows%"), 12.5);
  EXPECT_EQ(value_of(values, "overflows%"), 25.0);
  EXPECT_EQ(value_of(values, "scale_inv_min"), 0.25);
  EXPECT_EQ(value_of(values, "scale_inv_max"), 0.25);
  EXPECT_EQ(value_of(values, "mse"), 0.125);
  EXPECT_NEAR(*value_of(values, "sqnr"), 13.979400086720375, 1e-12);    // 10 log10(25)
  EXPECT_NEAR(*value_of(values, "cosine"), 0.9946917938265513, 1e-13);  // 29 / sqrt(25 * 34)
  EXPECT_EQ(value_of(values, "max_error"), 1.0);
  EXPECT_THAT(flags_of(values, "mse"), IsEmpty());
}

TEST(QuantizationAccumulator, DelayedScalingCountsWhatIsAboveTheMaximum) {
  QuantizationAccumulator accumulator = every_statistic(OverflowRule::kAboveMaximum);
  QuantizationError error = small_error();
  error.numel = 8;
  error.overflows = 3;
  error.saturated = 2;
  accumulator.feed(error, 1.0F, {});
  EXPECT_EQ(value_of(reduce_over({&accumulator}), "overflows%"), 37.5);
}

TEST(QuantizationAccumulator, MicrobatchesAndRanksAddUp) {
  QuantizationAccumulator a = every_statistic();
  QuantizationAccumulator b = every_statistic();
  QuantizationError error = small_error();
  error.underflows = 1;
  a.feed(error, 0.5F, {});
  error.max_error = 3;
  a.feed(error, 2.0F, {});
  error.underflows = 0;
  error.max_error = 2;
  b.feed(error, 0.125F, {});
  const auto values = reduce_over({&a, &b});
  EXPECT_DOUBLE_EQ(*value_of(values, "underflows%"), 200.0 / 6.0);
  EXPECT_EQ(value_of(values, "scale_inv_min"), 0.125);
  EXPECT_EQ(value_of(values, "scale_inv_max"), 2.0);
  EXPECT_EQ(value_of(values, "mse"), 0.5);
  EXPECT_EQ(value_of(values, "max_error"), 3.0);
}

TEST(QuantizationAccumulator, FlagsOfAllScalesAreJoined) {
  QuantizationAccumulator a = every_statistic();
  QuantizationAccumulator b = every_statistic();
  a.feed(small_error(), 1.0F, Flags{"zero_amax"});
  a.feed(small_error(), 1.0F, Flags{"no_history"});
  b.feed(small_error(), 1.0F, Flags{"scale_clamped"});
  const auto values = reduce_over({&a, &b});
  EXPECT_THAT(flags_of(values, "scale_inv_min"),
              UnorderedElementsAre("zero_amax", "no_history", "scale_clamped"));
  EXPECT_THAT(flags_of(values, "mse"), UnorderedElementsAre("zero_amax", "no_history", "scale_clamped"));
}

TEST(QuantizationAccumulator, NanElementsAreFlaggedAndLeftOutOfTheMean) {
  QuantizationAccumulator accumulator = every_statistic();
  QuantizationError error = small_error();
  error.numel = 4;
  error.nan = 2;  // the two others are compared
  error.underflows = 1;
  accumulator.feed(error, 1.0F, {});
  const auto values = reduce_over({&accumulator});
  EXPECT_EQ(value_of(values, "mse"), 0.5);
  EXPECT_EQ(value_of(values, "underflows%"), 25.0);
  EXPECT_THAT(flags_of(values, "mse"), ElementsAre("nan_amax"));
}

// An infinite element is in the percentages and not in the mean.
TEST(QuantizationAccumulator, ElementsThatCannotBeComparedAreLeftOutOfTheMean) {
  QuantizationAccumulator accumulator = every_statistic();
  QuantizationError error = small_error();
  error.numel = 4;
  error.overflows = error.saturated = 2;
  accumulator.feed(error, 1.0F, {});
  const auto values = reduce_over({&accumulator});
  EXPECT_EQ(value_of(values, "mse"), 0.5);
  EXPECT_EQ(value_of(values, "overflows%"), 50.0);
}

TEST(QuantizationAccumulator, OnlyNan) {
  QuantizationAccumulator accumulator = every_statistic();
  QuantizationError error;
  error.numel = error.nan = 3;
  accumulator.feed(error, 1.0F, {});
  EXPECT_THAT(names_of(reduce_over({&accumulator})),
              UnorderedElementsAre("underflows%", "overflows%", "saturated%", "flushed%", "scale_inv_min",
                                   "scale_inv_max", "scale_spread"));
}

TEST(QuantizationAccumulator, ExactIsInfiniteAndFlagged) {
  QuantizationAccumulator accumulator = every_statistic();
  QuantizationError error = small_error();
  error.error_squares = 0;
  error.quantized_squares = error.product = 25;
  accumulator.feed(error, 1.0F, {});
  const auto values = reduce_over({&accumulator});
  EXPECT_EQ(value_of(values, "sqnr"), std::numeric_limits<double>::infinity());
  EXPECT_THAT(flags_of(values, "sqnr"), ElementsAre("exact"));
  EXPECT_THAT(flags_of(values, "mse"), IsEmpty());
  EXPECT_EQ(value_of(values, "cosine"), 1.0);
}

TEST(QuantizationAccumulator, ZerosAndTotalUnderflow) {
  QuantizationAccumulator zeros = every_statistic();
  QuantizationError none;
  none.numel = none.compared = 2;
  zeros.feed(none, 1.0F, Flags{"zero_amax"});
  EXPECT_EQ(value_of(reduce_over({&zeros}), "cosine"), 1.0);
  EXPECT_EQ(value_of(reduce_over({&zeros}), "mse"), 0.0);

  QuantizationAccumulator lost = every_statistic();
  QuantizationError all;
  all.numel = all.compared = all.underflows = 2;
  all.signal_squares = all.error_squares = 2e-20;
  lost.feed(all, 1.0F, {});
  const auto values = reduce_over({&lost});
  EXPECT_EQ(value_of(values, "underflows%"), 100.0);
  EXPECT_EQ(value_of(values, "cosine"), 0.0);
  EXPECT_EQ(value_of(values, "sqnr"), 0.0);
}

TEST(QuantizationAccumulator, AnEmptyShardBringsNoScaleAndNoFlag) {
  QuantizationAccumulator empty = every_statistic();
  QuantizationAccumulator full = every_statistic();
  empty.feed(QuantizationError(), 1.0F, Flags{"zero_amax"});
  full.feed(small_error(), 0.5F, {});
  EXPECT_TRUE(empty.ran());
  const auto values = reduce_over({&empty, &full});
  EXPECT_EQ(value_of(values, "scale_inv_max"), 0.5);
  EXPECT_EQ(value_of(values, "scale_inv_min"), 0.5);
  EXPECT_THAT(flags_of(values, "mse"), IsEmpty());
  EXPECT_TRUE(reduce_over({&empty, &empty}).empty());
}

TEST(QuantizationAccumulator, ARankThatDidNotRunAddsNothing) {
  QuantizationAccumulator idle = every_statistic();
  QuantizationAccumulator full = every_statistic();
  full.feed(small_error(), 4.0F, {});
  const auto values = reduce_over({&idle, &full});
  EXPECT_EQ(value_of(values, "scale_inv_min"), 4.0);
  EXPECT_EQ(value_of(values, "mse"), 0.5);
}

TEST(QuantizationAccumulator, ResetForgetsEverything) {
  QuantizationAccumulator accumulator = every_statistic();
  accumulator.feed(small_error(), 64.0F, Flags{"inf_amax"});
  accumulator.reset();
  EXPECT_FALSE(accumulator.ran());
  accumulator.feed(small_error(), 0.5F, {});
  const auto values = reduce_over({&accumulator});
  EXPECT_EQ(value_of(values, "scale_inv_max"), 0.5);
  EXPECT_EQ(value_of(values, "mse"), 0.5);
  EXPECT_THAT(flags_of(values, "mse"), IsEmpty());
}

TEST(QuantizationAccumulator, NamesCarryPrefixAndSuffix) {
  QuantizationAccumulator accumulator("mxfp8_", "_columnwise", {"mse", "underflows%"},
                                      OverflowRule::kRoundsPastMaximum);
  accumulator.feed(small_error(), 1.0F, {});
  EXPECT_THAT(names_of(reduce_over({&accumulator})),
              ElementsAre("mxfp8_mse_columnwise", "mxfp8_underflows%_columnwise"));
}

TEST(QuantizationAccumulator, IdTellsRecipeDirectionAndRuleApart) {
  const std::vector<std::string> names = {"mse"};
  const std::vector<std::string> ids = {
      QuantizationAccumulator("", "", names, OverflowRule::kAboveMaximum).id(),
      QuantizationAccumulator("", "", names, OverflowRule::kRoundsPastMaximum).id(),
      QuantizationAccumulator("mxfp8_", "", names, OverflowRule::kRoundsPastMaximum).id(),
      QuantizationAccumulator("mxfp8_", "_columnwise", names, OverflowRule::kRoundsPastMaximum).id(),
      QuantizationAccumulator("", "", {"sqnr"}, OverflowRule::kRoundsPastMaximum).id()};
  for (std::size_t i = 0; i < ids.size(); ++i) {
    for (std::size_t k = i + 1; k < ids.size(); ++k) EXPECT_NE(ids[i], ids[k]);
  }
}

TEST(QuantizationAccumulator, UnknownNamesAndFlagsAreRefused) {
  EXPECT_THROW(QuantizationAccumulator("", "", {"median"}, OverflowRule::kAboveMaximum), Error);
  QuantizationAccumulator accumulator = every_statistic();
  EXPECT_THROW(accumulator.feed(small_error(), 1.0F, Flags{"lucky"}), Error);
}

}  // namespace
}  // namespace amaxscope
