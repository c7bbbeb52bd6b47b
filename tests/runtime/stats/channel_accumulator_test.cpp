#include "runtime/stats/channel_accumulator.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>

#include "core/error.hpp"
#include "tests/runtime/stats/simulated_reduction.hpp"

namespace amaxscope {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::reduce_step;
using testing::value_of;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Tensor matrix(std::initializer_list<float> values, std::int64_t rows, std::int64_t cols) {
  return Tensor::of<float>(values, Shape{rows, cols});
}

TEST(ChannelAccumulator, MostEnergyFirst) {
  ChannelAccumulator channels(Lines::kColumns, 2, {});
  channels.feed(matrix({1, 0, 3, -2,  //
                        1, 0, 4, 2},
                       2, 4));  // energies 2, 0, 25, 8
  const auto values = reduce_step({&channels}, 0);
  ASSERT_EQ(values.size(), 6U);
  EXPECT_EQ(value_of(values, "outlier_channel_1_id"), 2.0);
  EXPECT_DOUBLE_EQ(*value_of(values, "outlier_channel_1_energy%"), 100.0 * 25 / 35);
  EXPECT_EQ(value_of(values, "outlier_channel_1_due_steps"), 1.0);
  EXPECT_EQ(value_of(values, "outlier_channel_2_id"), 3.0);
  EXPECT_DOUBLE_EQ(*value_of(values, "outlier_channel_2_energy%"), 100.0 * 8 / 35);
}

TEST(ChannelAccumulator, ColumnsSplitUnevenlyHaveGlobalIds) {
  // Columns 0-1, none, 2-4 on three ranks.
  ChannelAccumulator a(Lines::kColumns, 3, {.parts = 3, .part = 0});
  ChannelAccumulator b(Lines::kColumns, 3, {.parts = 3, .part = 1});
  ChannelAccumulator c(Lines::kColumns, 3, {.parts = 3, .part = 2});
  a.feed(matrix({1, 3}, 1, 2));
  b.feed(TensorView(nullptr, DType::kF32, Shape{1, 0}));
  c.feed(matrix({2, 0, 10}, 1, 3));
  const auto values = reduce_step({&a, &b, &c}, 0);
  EXPECT_EQ(value_of(values, "outlier_channel_1_id"), 4.0);
  EXPECT_EQ(value_of(values, "outlier_channel_2_id"), 1.0);
  EXPECT_EQ(value_of(values, "outlier_channel_3_id"), 2.0);
  EXPECT_DOUBLE_EQ(*value_of(values, "outlier_channel_2_energy%"), 100.0 * 9 / 114);
}

TEST(ChannelAccumulator, RowsSplitOverRanksAndMicrobatchesAddUp) {
  // No rank alone has column 1 on top.
  ChannelAccumulator a(Lines::kColumns, 1, {});
  ChannelAccumulator b(Lines::kColumns, 1, {});
  a.feed(matrix({3, 2, 0}, 1, 3));
  a.feed(matrix({0, 2, 0}, 1, 3));
  b.feed(matrix({0, 2, 3}, 1, 3));
  const auto values = reduce_step({&a, &b}, 0);
  EXPECT_EQ(value_of(values, "outlier_channel_1_id"), 1.0);
  EXPECT_DOUBLE_EQ(*value_of(values, "outlier_channel_1_energy%"), 100.0 * 12 / 30);
}

TEST(ChannelAccumulator, ARankThatFedNothingMovesNoIds) {
  ChannelAccumulator a(Lines::kColumns, 1, {.parts = 2, .part = 0});
  ChannelAccumulator b(Lines::kColumns, 1, {.parts = 2, .part = 1});
  b.feed(matrix({1, 5, 1}, 1, 3));
  EXPECT_EQ(value_of(reduce_step({&a, &b}, 0), "outlier_channel_1_id"), 4.0);
  // An empty shard says how wide it is.
  a.feed(TensorView(nullptr, DType::kF32, Shape{0, 2}));
  b.feed(matrix({1, 5, 1}, 1, 3));
  EXPECT_EQ(value_of(reduce_step({&a, &b}, 1), "outlier_channel_1_id"), 3.0);
}

TEST(ChannelAccumulator, PersistenceCountsTheLastDueSteps) {
  ChannelAccumulator a(Lines::kColumns, 1, {.parts = 2, .part = 0});
  ChannelAccumulator b(Lines::kColumns, 1, {.parts = 2, .part = 1});
  std::vector<StatValue> values;
  for (int step = 0; step < 20; ++step) {
    const bool first = step == 3 || step == 19;  // column 0 is on top twice, column 3 else
    a.feed(matrix({first ? 9.0F : 1.0F, 0}, 1, 2));
    b.feed(matrix({0, 5}, 1, 2));
    values = reduce_step({&a, &b}, step);
    EXPECT_EQ(value_of(values, "outlier_channel_1_id"), first ? 0.0 : 3.0);
    if (step == 3) {
      EXPECT_EQ(value_of(values, "outlier_channel_1_due_steps"), 1.0);
    }
    if (step == 18) {
      EXPECT_EQ(value_of(values, "outlier_channel_1_due_steps"), 15.0) << "16 but for step 3";
    }
  }
  EXPECT_EQ(value_of(values, "outlier_channel_1_due_steps"), 1.0) << "step 3 is forgotten by now";
}

// Rows 0-1 and 2-4 of a weight on two ranks; 25, 1, 36, 4, 0.
TEST(ChannelAccumulator, RowsSplitOverRanksAreCountedThrough) {
  ChannelAccumulator a(Lines::kRows, 3, {.parts = 2, .part = 0});
  ChannelAccumulator b(Lines::kRows, 3, {.parts = 2, .part = 1});
  a.feed(matrix({3, 4, 1, 0}, 2, 2));
  b.feed(matrix({6, 0, 0, 2, 0, 0}, 3, 2));
  const auto values = reduce_step({&a, &b}, 0);
  EXPECT_EQ(a.id(), "outlier_rows 3");
  EXPECT_EQ(value_of(values, "outlier_row_1_id"), 2.0);
  EXPECT_DOUBLE_EQ(*value_of(values, "outlier_row_1_energy%"), 100.0 * 36 / 66);
  EXPECT_EQ(value_of(values, "outlier_row_1_tp_rank"), 1.0);
  EXPECT_EQ(value_of(values, "outlier_row_2_id"), 0.0);
  EXPECT_EQ(value_of(values, "outlier_row_2_tp_rank"), 0.0);
  EXPECT_EQ(value_of(values, "outlier_row_3_id"), 3.0);
  EXPECT_FALSE(value_of(values, "outlier_row_1_since"));
}

TEST(ChannelAccumulator, TheRankThatHoldsAChannelIsNamedWhereColumnsAreSplit) {
  ChannelAccumulator a(Lines::kColumns, 1, {.parts = 2, .part = 0});
  ChannelAccumulator b(Lines::kColumns, 1, {.parts = 2, .part = 1});
  a.feed(matrix({1, 1, 1}, 1, 3));
  b.feed(matrix({1, 5}, 1, 2));
  EXPECT_EQ(value_of(reduce_step({&a, &b}, 0), "outlier_channel_1_tp_rank"), 1.0);
  ChannelAccumulator whole(Lines::kColumns, 1, {});
  whole.feed(matrix({1, 5}, 1, 2));
  EXPECT_FALSE(value_of(reduce_step({&whole}, 0), "outlier_channel_1_tp_rank"));
}

// Column 2 begins to grow by a fifth a step with step 10, is on top from step 14 on, and is an octave of
// energy above what it was from step 12 on.
TEST(ChannelAccumulator, AColumnThatGrowsSaysSinceWhen) {
  ChannelAccumulator channels(Lines::kColumns, 1, {});
  for (int step = 0; step < 24; ++step) {
    const auto grown = static_cast<float>(step < 10 ? 1.0 : std::pow(1.2, step - 9));
    channels.feed(matrix({2, 1, grown}, 1, 3));
    const auto values = reduce_step({&channels}, 5 * step);
    EXPECT_EQ(value_of(values, "outlier_channel_1_id"), step < 13 ? 0.0 : 2.0) << step;
    const auto since = value_of(values, "outlier_channel_1_since");
    EXPECT_EQ(since, step < 13 ? std::nullopt : std::optional(50.0)) << step;
    if (step != 15) continue;
    ChannelAccumulator later(Lines::kColumns, 1, {});
    later.restore(channels.saved());
    EXPECT_EQ(later.saved(), channels.saved());
    channels = later;
  }
}

TEST(ChannelAccumulator, RefusesAHostileState) {
  ChannelAccumulator channels(Lines::kColumns, 1, {});
  channels.feed(matrix({2, 1}, 1, 2));
  static_cast<void>(reduce_step({&channels}, 0));
  const std::vector<std::uint64_t> sound = channels.saved();
  channels.restore(sound);
  for (std::size_t i = 0; i < sound.size(); ++i) {
    const std::vector<std::uint64_t> cut(sound.begin(), sound.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_THROW(channels.restore(cut), Error) << i;
  }
  for (const std::size_t at : {0U, 1U, 3U}) {
    std::vector<std::uint64_t> wrong = sound;
    wrong[at] = ~std::uint64_t{0};
    EXPECT_THROW(channels.restore(wrong), Error) << at;
  }
}

TEST(ChannelAccumulator, WhatIsNotFiniteIsLeftOut) {
  ChannelAccumulator channels(Lines::kColumns, 3, {});
  channels.feed(matrix({kNan, 1, kInf, 2, 2, 1}, 2, 3));  // energies 4, 5, 1
  const auto values = reduce_step({&channels}, 0);
  EXPECT_EQ(value_of(values, "outlier_channel_1_id"), 1.0);
  EXPECT_EQ(value_of(values, "outlier_channel_1_energy%"), 50.0);
  EXPECT_EQ(value_of(values, "outlier_channel_2_id"), 0.0);
}

TEST(ChannelAccumulator, FewColumnsZerosTiesAndNothing) {
  ChannelAccumulator channels(Lines::kColumns, 4, {});
  channels.feed(matrix({1, 0, 1}, 1, 3));
  const auto values = reduce_step({&channels}, 0);
  EXPECT_EQ(values.size(), 6U) << "two columns hold anything";
  EXPECT_EQ(value_of(values, "outlier_channel_1_id"), 0.0) << "of equals the lower id";
  channels.feed(matrix({0, 0}, 1, 2));
  EXPECT_TRUE(reduce_step({&channels}, 1).empty());
  channels.feed(TensorView(nullptr, DType::kF32, Shape{0}));
  EXPECT_TRUE(reduce_step({&channels}, 2).empty());
  EXPECT_TRUE(channels.take_warnings().empty());
}

TEST(ChannelAccumulator, TooManyColumnsAreSaidOnce) {
  const std::vector<float> wide(ChannelAccumulator::kMaxLines / 2 + 1, 1.0F);
  const auto columns = static_cast<std::int64_t>(wide.size());
  ChannelAccumulator a(Lines::kColumns, 1, {.parts = 2, .part = 0});
  ChannelAccumulator b(Lines::kColumns, 1, {.parts = 2, .part = 1});
  for (int step = 0; step < 2; ++step) {
    a.feed({wide.data(), DType::kF32, Shape{1, columns}});
    b.feed({wide.data(), DType::kF32, Shape{1, columns}});
    EXPECT_TRUE(reduce_step({&a, &b}, step).empty());
    const std::vector<std::string> warnings = b.take_warnings();
    ASSERT_EQ(warnings.size(), step == 0 ? 1U : 0U);
    if (step == 0) {
      EXPECT_THAT(warnings[0], HasSubstr("1048576 columns"));
    }
  }
}

}  // namespace
}  // namespace amaxscope
