#include "runtime/stats/trend_accumulator.hpp"

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
using ::testing::HasSubstr;
using testing::reduce_step;
using testing::value_of;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

const MagnitudeLimit kHalf = {.value = 65504};

void feed(TrendAccumulator& into, const std::vector<float>& values, const MagnitudeLimit& limit = kHalf) {
  into.feed(tensor_stats({values.data(), DType::kF32, Shape{static_cast<std::int64_t>(values.size())}}),
            limit);
}

std::set<std::string> every_alarm() {
  return {TrendAccumulator::known_alarms().begin(), TrendAccumulator::known_alarms().end()};
}

/// What a due step finds; the accumulators are reset as after any.
std::vector<Finding> findings_of(TrendAccumulator& trend, std::int64_t iteration) {
  const std::vector<StatAccumulator*> ranks = {&trend};
  const auto reduced = testing::simulate(ranks);
  trend.advance(reduced.view(), iteration);
  std::vector<Finding> found = trend.findings(reduced.view());
  trend.reset();
  return found;
}

TEST(TrendAccumulator, SlopeOfTheAmaxOverRanksAndMicrobatches) {
  TrendAccumulator a(16, {});
  TrendAccumulator b(16, {});
  std::vector<StatValue> values;
  for (int step = 0; step < 5; ++step) {
    // The amax 2^step is on alternating ranks, in the second micro-batch.
    const float amax = std::ldexp(1.0F, step);
    TrendAccumulator& holder = step % 2 == 0 ? a : b;
    feed(a, {0.5F});
    feed(b, {-0.25F});
    feed(holder, {-amax, 0});
    values = reduce_step({&a, &b}, 10 * step);
  }
  EXPECT_DOUBLE_EQ(*value_of(values, "amax_log2_slope"), 0.1);
  EXPECT_EQ(value_of(values, "amax_jump_bits"), 2.5);  // 4 less the median of 0 1 2 3
  EXPECT_EQ(value_of(values, "amax_reversals"), 0.0);
  EXPECT_NEAR(*value_of(values, "headroom_bits"), std::log2(65504.0) - 4, 1e-6);
  EXPECT_NEAR(*value_of(values, "steps_to_saturation"), (std::log2(65504.0) - 4) / 0.1, 1e-4);
  EXPECT_FALSE(value_of(values, "amax_change_point").has_value());
}

TEST(TrendAccumulator, HeadroomIsTheLeastOfAllRanks) {
  TrendAccumulator a(16, {});
  TrendAccumulator b(16, {});
  feed(a, {4}, {.value = 16, .of_codes = true});   // two bits
  feed(b, {64}, {.value = 32, .of_codes = true});  // one too many
  const auto values = reduce_step({&a, &b}, 0);
  EXPECT_EQ(value_of(values, "headroom_bits"), -1.0);
  EXPECT_FALSE(value_of(values, "amax_log2_slope").has_value()) << "one point";
  EXPECT_FALSE(value_of(values, "steps_to_saturation").has_value());
}

TEST(TrendAccumulator, ALimitThatMovesWithTheAmaxIsNeverReached) {
  TrendAccumulator moving(16, every_alarm());
  TrendAccumulator fixed(16, {});
  std::vector<StatValue> of_moving;
  std::vector<StatValue> of_fixed;
  for (int step = 0; step < 4; ++step) {
    feed(moving, {std::ldexp(1.0F, step)}, {.value = std::ldexp(1.0, step), .moves = true, .of_codes = true});
    feed(fixed, {std::ldexp(1.0F, step)}, {.value = 4, .of_codes = true});
    of_moving = reduce_step({&moving}, step);
    of_fixed = reduce_step({&fixed}, step);
  }
  EXPECT_EQ(value_of(of_moving, "headroom_bits"), 0.0);
  EXPECT_FALSE(value_of(of_moving, "steps_to_saturation").has_value());
  EXPECT_EQ(value_of(of_fixed, "headroom_bits"), -1.0);
  EXPECT_EQ(value_of(of_fixed, "steps_to_saturation"), 0.0) << "reached";
}

TEST(TrendAccumulator, NanOnOneRankIsFlaggedAndLeftOut) {
  TrendAccumulator a(16, {});
  TrendAccumulator b(16, {});
  feed(a, {kNan, 2, kInf});
  feed(b, {8});
  const auto values = reduce_step({&a, &b}, 0);
  EXPECT_NEAR(*value_of(values, "headroom_bits"), std::log2(65504.0) - 3, 1e-6);
  EXPECT_THAT(flags_of(values, "headroom_bits"), ElementsAre("nan_amax", "inf_amax"));
}

TEST(TrendAccumulator, StepsWithoutALevelAddNoPoint) {
  TrendAccumulator a(16, {});
  TrendAccumulator b(16, {});
  for (int step = 0; step < 3; ++step) {
    feed(a, {});
    feed(b, {std::ldexp(1.0F, step)});  // an empty shard and a full one
    reduce_step({&a, &b}, step);
  }
  for (int step = 3; step < 6; ++step) {
    feed(a, {0, 0});  // all zero
    feed(b, step == 4 ? std::vector<float>{kNan} : std::vector<float>{});
    const auto values = reduce_step({&a, &b}, step);
    EXPECT_EQ(value_of(values, "amax_log2_slope"), 1.0) << "as it was";
    EXPECT_FALSE(value_of(values, "headroom_bits").has_value());
    EXPECT_FALSE(value_of(values, "amax_jump_bits").has_value());
  }
  EXPECT_TRUE(reduce_step({&a, &b}, 6).size() > 0);
  TrendAccumulator never(16, {});
  feed(never, {0});
  EXPECT_TRUE(reduce_step({&never}, 0).empty());
}

TEST(TrendAccumulator, JumpIsFoundOnce) {
  TrendAccumulator trend(16, every_alarm());
  for (int step = 0; step < 6; ++step) {
    feed(trend, {1});
    EXPECT_TRUE(findings_of(trend, step).empty());
  }
  feed(trend, {7.9F});
  EXPECT_TRUE(findings_of(trend, 6).empty()) << "less than eight times";
  for (int step = 7; step < 9; ++step) {
    feed(trend, {16});
    const auto found = findings_of(trend, step);
    ASSERT_EQ(found.size(), step == 7 ? 1U : 0U);
    if (step == 7) {
      EXPECT_EQ(found[0].check, "amax_jump");
      EXPECT_THAT(found[0].what, HasSubstr("amax 16 is 16 times the median of the 7 due steps before"));
    }
  }
}

TEST(TrendAccumulator, OnlyAlarmsThatWereAskedFor) {
  TrendAccumulator trend(16, {"oscillation"});
  std::vector<Finding> all;
  for (int step = 0; step < 12; ++step) {
    feed(trend, {step == 0 ? 1e-5F : step % 2 == 0 ? 1.0F : 4.0F});
    for (Finding& finding : findings_of(trend, step)) all.push_back(std::move(finding));
  }
  ASSERT_EQ(all.size(), 1U) << "though 1e-5 to 4 was a jump, too";
  EXPECT_EQ(all[0].check, "oscillation");
}

TEST(TrendAccumulator, SaturationOfCodesNeedsAScaleWithAHistory) {
  const auto found = [](double limit, bool no_history, bool moves) {
    TrendAccumulator trend(16, {"saturation"});
    feed(trend, {100}, {.value = limit, .moves = moves, .of_codes = true, .no_history = no_history});
    return findings_of(trend, 0).size();
  };
  EXPECT_EQ(found(50, false, false), 1U);
  EXPECT_EQ(found(51, false, false), 0U)
      << "a stale scale of less than a factor of two is how delayed scaling is";
  EXPECT_EQ(found(50, true, false), 0U) << "the first step at scale 1";
}

TEST(TrendAccumulator, SaturationOfATypeIsExtrapolated) {
  // From 2 to 2^10 in f16's 2^16: one bit a step reaches it in 6 steps; a tenth of a bit in 60.
  const auto first_alarm = [](double slope) {
    TrendAccumulator trend(8, {"saturation"});
    for (int step = 0; step < 150; ++step) {
      feed(trend, {static_cast<float>(std::exp2(1 + slope * step))});
      if (!findings_of(trend, step).empty()) return step;
    }
    return -1;
  };
  // Window of 8 points: 7 iterations. log2(65504) - 1 - slope * step <= 7 * slope.
  EXPECT_EQ(first_alarm(1.0), 8);
  EXPECT_EQ(first_alarm(0.1), 143);
  EXPECT_EQ(first_alarm(0.0), -1);
}

TEST(TrendAccumulator, NoHistoryIsAFlagOfTheHeadroom) {
  TrendAccumulator trend(16, {});
  feed(trend, {1000}, {.value = 448, .of_codes = true, .no_history = true});
  const auto values = reduce_step({&trend}, 0);
  EXPECT_THAT(flags_of(values, "headroom_bits"), ElementsAre("no_history"));
  EXPECT_THAT(flags_of(values, "amax_reversals"), ElementsAre());
}

TEST(TrendAccumulator, UnderflowIsFoundOnceAboveItsBound) {
  TrendAccumulator a(16, {"underflow"}, 5);
  TrendAccumulator b(16, {"underflow"}, 5);
  EXPECT_TRUE(a.counts_underflows());
  EXPECT_FALSE(TrendAccumulator(16, {"saturation"}).counts_underflows());
  EXPECT_EQ(TrendAccumulator(16, {"saturation"}).sum_words(), 0U);
  EXPECT_NE(a.id(), TrendAccumulator(16, {"underflow"}, 6).id());
  const auto found_at = [&](std::uint64_t underflows, std::int64_t step) {
    // 60 elements on one rank, two micro-batches of 20 on the other.
    feed(a, {1});
    a.feed_codes(underflows, 60);
    for (int microbatch = 0; microbatch < 2; ++microbatch) {
      feed(b, {1});
      b.feed_codes(1, 20);
    }
    const std::vector<StatAccumulator*> ranks = {&a, &b};
    const auto reduced = testing::simulate(ranks);
    a.advance(reduced.view(), step);
    std::vector<Finding> found = a.findings(reduced.view());
    a.reset();
    b.reset();
    return found;
  };
  EXPECT_TRUE(found_at(3, 0).empty()) << "5 of 100 is not above 5 %";
  const auto found = found_at(4, 1);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].check, "underflow");
  EXPECT_THAT(found[0].what, HasSubstr("6 % of the elements"));
  EXPECT_TRUE(found_at(60, 2).empty()) << "said once";
}

TEST(TrendAccumulator, UnknownAlarmIsRefused) { EXPECT_THROW(TrendAccumulator(16, {"smoke"}), Error); }

}  // namespace
}  // namespace amaxscope
