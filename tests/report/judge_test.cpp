// The verdict on records that are written by hand, one kind of trouble each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "report/verdict.hpp"
#include "tests/report/run_folder.hpp"

namespace amaxscope::report {
namespace {

using test::RunFolder;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class Judge : public ::testing::Test {
 protected:
  Judge() { folder_.describe(); }
  Verdict verdict() const { return judge(folder_.path()); }
  void steps(int count) const {
    for (int i = 0; i < count; ++i) folder_.healthy_step(i);
  }
  /// A statistic of one tensor every five iterations, all steps healthy.
  template <class Value>
  void series(const std::string& layer, const std::string& tensor, int points, const Value& stats_at,
              const std::string& recipe = "delayed", const std::string& more = R"("format":"E4M3")") const {
    for (int i = 0; i < points; ++i) folder_.record(5 * i, layer, tensor, stats_at(i), recipe, more);
    for (int i = 0; i < points; ++i) folder_.healthy_step(5 * i);
  }
  RunFolder folder_;
};

TEST_F(Judge, NothingFound) {
  series("a.fc1", "activation", 10, [](int) { return R"("cur_amax":2,"saturated_energy%":0,"sqnr":31)"; });
  const Verdict v = verdict();
  EXPECT_EQ(v.outcome, Outcome::kHealthy);
  EXPECT_FALSE(v.cause);
  EXPECT_THAT(v.clean,
              Contains(HasSubstr("I1 replicas, I2 shared scales, I3 copies, I7 weights, I8 scalars")));
  EXPECT_THAT(v.not_measured, Contains(HasSubstr("I4 recompute")));
  EXPECT_THAT(v.not_measured, Contains(HasSubstr("lost updates")));
}

TEST_F(Judge, RecordsThatCannotTellRightFromWrong) {
  folder_.record(0, "a.fc1", "activation", R"("std":2)");
  folder_.scalars(0, R"("loss":2)");
  folder_.end_of_step(0);
  EXPECT_EQ(verdict().outcome, Outcome::kCannotTell);
  EXPECT_THAT(verdict().sentence, HasSubstr("--preset diagnose"));
}

TEST_F(Judge, OneScaleThatIsForeign) {
  steps(20);
  folder_.finding(17, "I2", "a.qkv", "activation", "1", "scales differ; rank 1 did not take the largest amax",
                  R"("sets":"rank 0 against rank 1")");
  const Verdict v = verdict();
  ASSERT_EQ(v.outcome, Outcome::kFound);
  EXPECT_EQ(v.cause->kind, "foreign_scale");
  EXPECT_EQ(v.cause->iteration, 17);
  EXPECT_THAT(v.cause->places, ElementsAre(Place{"a.qkv", "activation"}));
  EXPECT_THAT(v.cause->ranks, ElementsAre(1));
  EXPECT_THAT(v.cause->gemms, ElementsAre("fprop", "wgrad"));
  EXPECT_THAT(v.clean, Not(Contains(HasSubstr("I2"))));
}

TEST_F(Judge, ManyForeignScalesAreAWrongGroup) {
  for (const char* layer : {"a.qkv", "a.fc1", "b.qkv"})
    folder_.record(0, layer, "activation", R"("cur_amax":1)");
  folder_.healthy_step(0);
  for (const char* layer : {"a.fc1", "a.qkv", "b.qkv"}) {
    folder_.finding(1, "I2", layer, "activation", "1", "scales differ", R"("sets":"rank 0 against rank 1")");
  }
  folder_.healthy_step(1);
  const Verdict v = verdict();
  EXPECT_EQ(v.cause->kind, "wrong_reduction_group");
  EXPECT_THAT(v.cause->ranks, IsEmpty());
  ASSERT_EQ(v.cause->places.size(), 3U);
  EXPECT_EQ(v.cause->places[0].layer, "a.qkv");  // the model's order, not the alphabet's
}

TEST_F(Judge, TheReplicaThatIsFarOffAndNotThoseThatFollowIt) {
  steps(3);
  const auto apart = [&](int iteration, const char* layer, const char* difference) {
    folder_.finding(
        iteration, "I1", layer, "update", "1", "replicas differ",
        fmt::format(R"("largest_relative_difference":"{}","sets":"rank 0 against rank 1")", difference));
  };
  apart(2, "a.norm", "0");
  apart(2, "final.norm", "1.99");
  apart(2, "b.norm", "1e-6");
  apart(3, "c.norm", "3");
  folder_.finding(2, "I8", "", "grad_norm", "1", "grad_norm differs");
  const Verdict v = verdict();
  EXPECT_EQ(v.cause->kind, "replicas_differ");
  EXPECT_THAT(v.cause->places, ElementsAre(Place{"final.norm", "update"}));
  EXPECT_EQ(v.cause->iteration, 2);
  EXPECT_THAT(v.cause->ranks, IsEmpty());  // one against one
  ASSERT_EQ(v.also.size(), 1U);
  EXPECT_EQ(v.also[0].kind, "scalars_differ");
}

TEST_F(Judge, ElementsNearZeroDoNotHideTheReplicaThatIsFarOff) {
  steps(3);
  const auto apart = [&](const char* layer, const char* element, const char* norm) {
    folder_.finding(2, "I1", layer, "update", "1", "replicas differ",
                    fmt::format(R"("largest_relative_difference":"{}","relative_norm_of_difference":"{}")",
                                element, norm));
  };
  apart("a.norm_bias", "0.09", "1e-5");
  apart("final.norm", "0.03", "0.02");
  EXPECT_THAT(verdict().cause->places, ElementsAre(Place{"final.norm", "update"}));
}

TEST_F(Judge, AScaleThatNeverLeavesItsInitialValueIsNoStart) {
  const auto flagged = [&](int count) {
    for (int i = 0; i < count; ++i) {
      folder_.line(
          fmt::format(R"({{"iteration":{},"layer":"a.fc1","tensor":"gradient","phase":"backward",)"
                      R"("stats":{{"flushed_energy%":60}},"flags":{{"flushed_energy%":["no_history"]}},)"
                      R"("recipe":"delayed"}})",
                      5 * i));
    }
  };
  flagged(20);
  for (int i = 0; i < 20; ++i) folder_.healthy_step(5 * i);
  EXPECT_EQ(verdict().cause->kind, "flush");
}

TEST_F(Judge, FindingsOfSeveralRanksAreOne) {
  steps(3);
  folder_.finding(2, "I3", "a.fc2", "weight", "1", "the columnwise copy", R"("copy":"columnwise")", 1);
  folder_.finding(2, "I3", "a.fc2", "weight", "0", "the columnwise copy", R"("copy":"columnwise")", 0);
  folder_.finding(2, "I7", "a.fc2", "weight", "0", "the columnwise codes have changed");
  const Verdict v = verdict();
  EXPECT_EQ(v.cause->kind, "copies_differ");
  EXPECT_THAT(v.cause->ranks, ElementsAre(0, 1));
  EXPECT_THAT(v.cause->gemms, ElementsAre("dgrad"));
}

TEST_F(Judge, TheEarlierOfANanAndABrokenEquality) {
  steps(3);
  folder_.finding(41, "first non-finite", "a.proj", "weight", "1",
                  "the tensor is finite, its columnwise codes are not");
  folder_.finding(41, "I7", "a.proj", "weight", "1", "the columnwise codes have changed");
  folder_.finding(41, "first non-finite", "embedding.weight", "update", "0", "the first NaN is element 3");
  EXPECT_EQ(verdict().cause->kind, "nonfinite");
  EXPECT_THAT(verdict().cause->places, ElementsAre(Place{"a.proj", "weight"}));
  EXPECT_THAT(verdict().cause->gemms, ElementsAre("dgrad"));
  folder_.finding(40, "I5", "a.proj", "weight", "0", "the scale is 8 times too large");
  EXPECT_EQ(verdict().cause->kind, "scale_too_large");
  EXPECT_EQ(verdict().moved.front().iteration, 40);
}

TEST_F(Judge, NansThatWereOnlyCounted) {
  folder_.record(10, "a.fc1", "gradient", R"("nan":0)");
  folder_.record(20, "a.fc1", "gradient", R"("nan":3)");
  folder_.record(30, "b.fc1", "gradient", R"("cur_amax":"NaN")");
  folder_.healthy_step(30);
  const Verdict v = verdict();
  EXPECT_EQ(v.cause->kind, "nonfinite");
  EXPECT_EQ(v.cause->iteration, 20);
  EXPECT_TRUE(v.cause->sampled);
  EXPECT_EQ(v.cause->confidence, Confidence::kLikely);
}

constexpr const char* kE5m2 =
    R"("format":"E5M2+E8M0 scales","formats":{"fp8_block_scaling_sqnr":"E4M3+F32 scales"})";

TEST_F(Judge, ACoarseFormatUnderBlockScales) {
  series(
      "a.fc1", "gradient", 5, [](int) { return R"("sqnr":25.5,"fp8_block_scaling_sqnr":31.5)"; }, "mxfp8",
      kE5m2);
  const Verdict v = verdict();
  EXPECT_EQ(v.cause->kind, "format");
  EXPECT_EQ(v.cause->confidence, Confidence::kCertain);
  EXPECT_THAT(v.cause->why, Contains(HasSubstr("6.0 dB")));
}

TEST_F(Judge, ThatFormatIsTheDefaultOfGradientsWithOneScale) {
  series(
      "a.fc1", "gradient", 5, [](int) { return R"("sqnr":25.5,"fp8_block_scaling_sqnr":31.5)"; }, "current",
      R"("format":"E5M2","formats":{"fp8_block_scaling_sqnr":"E4M3+F32 scales"})");
  EXPECT_EQ(verdict().outcome, Outcome::kHealthy);
}

TEST_F(Judge, SaturationThatLastsAndSaturationThatPasses) {
  // A spike and a warm-up: three due steps.
  series("a.fc1", "activation", 20,
         [](int i) { return fmt::format(R"("saturated_energy%":{})", i >= 3 && i < 6 ? 60 : 0); });
  EXPECT_EQ(verdict().outcome, Outcome::kHealthy);
  series("b.fc1", "activation", 20,
         [](int i) { return fmt::format(R"("saturated_energy%":{})", i >= 8 ? 4 : 0); });
  EXPECT_EQ(verdict().cause->kind, "saturation");
  EXPECT_EQ(verdict().cause->iteration, 40);
  EXPECT_THAT(verdict().cause->places, ElementsAre(Place{"b.fc1", "activation"}));
}

TEST_F(Judge, AScaleThatLosesAgainstItsOwnAmax) {
  series(
      "a.fc1", "activation", 20,
      [](int i) { return fmt::format(R"("sqnr":{},"fp8_current_scaling_sqnr":31)", i >= 4 ? 20 : 31); },
      "delayed", R"("format":"E4M3","formats":{"fp8_current_scaling_sqnr":"E4M3"})");
  EXPECT_EQ(verdict().cause->kind, "scale_worse_than_recipe");
  EXPECT_EQ(verdict().cause->iteration, 20);
}

TEST_F(Judge, RoundingThatRepeats) {
  const auto value = [](double correlation) {
    return [correlation](int) { return fmt::format(R"("nvfp4_rounding_correlation":{})", correlation); };
  };
  series("a.fc1", "gradient", 6, value(0.03), "nvfp4", R"("format":"E2M1+E4M3 scales")");
  // A what-if rounds to nearest in high precision: no draws to repeat.
  series("output", "gradient", 6, value(0.9), "none", R"("format":"high precision")");
  EXPECT_EQ(verdict().outcome, Outcome::kHealthy);
  series("b.fc1", "gradient", 6, value(0.48), "nvfp4", R"("format":"E2M1+E4M3 scales")");
  EXPECT_EQ(verdict().cause->kind, "rounding_repeats");
  EXPECT_THAT(verdict().cause->places, ElementsAre(Place{"b.fc1", "gradient"}));
}

TEST_F(Judge, LostUpdatesOfManyParameters) {
  const auto lost = [](int) { return R"("lost_updates%":70)"; };
  series("a.weight", "update", 5, lost, "none");
  EXPECT_EQ(verdict().outcome, Outcome::kHealthy);  // one parameter may have next to no gradient
  series("b.weight", "update", 5, lost, "none");
  series("c.weight", "update", 5, lost, "none");
  EXPECT_EQ(verdict().cause->kind, "lost_updates");
  EXPECT_EQ(verdict().cause->places.size(), 3U);
}

TEST_F(Judge, AChannelThatTakesOver) {
  const auto channel = [](double last) {
    return [last](int i) {
      return fmt::format(R"("outlier_channel_1_id":{},"outlier_channel_1_energy%":{})", i < 10 ? i : 70,
                         i < 10 ? 5.0 : last);
    };
  };
  series("a.fc2", "activation", 20, channel(20));
  EXPECT_EQ(verdict().outcome, Outcome::kHealthy);
  series("b.fc2", "activation", 20, channel(80));
  EXPECT_EQ(verdict().cause->kind, "outlier_channel");
  EXPECT_EQ(verdict().cause->channel, 70);
  EXPECT_EQ(verdict().cause->iteration, 50);
}

// The weight that makes the channel: 1 until iteration 20, then 5 % a step.
TEST_F(Judge, TheWeightThatMakesTheChannelSaysSinceWhen) {
  series("a.mlp.fc1", "weight", 24,
         [](int i) { return fmt::format(R"("cur_amax":{})", i <= 4 ? 1.0 : std::pow(1.05, 5.0 * (i - 4))); });
  series("a.mlp.fc2", "activation", 24, [](int i) {
    return fmt::format(R"("outlier_channel_1_id":{},"outlier_channel_1_energy%":{})", i < 12 ? i : 70,
                       i < 12 ? 5 : 80);
  });
  EXPECT_EQ(verdict().cause->kind, "outlier_channel");
  EXPECT_EQ(verdict().cause->iteration, 20);
  EXPECT_THAT(verdict().cause->why, Contains(HasSubstr("a.mlp.fc1 weight grows by 5.0 % a step")));
}

// The same weight, whose largest element another row holds until iteration 40: the row that grows knows since
// when, the largest element does not. The records are of ranks 0 and 1, tp 2; the channel is tp rank 1's.
TEST_F(Judge, TheRowThatGrowsSaysSinceWhenAndTheRecordsWhoseChannelItIs) {
  const auto weights = [](int last_row) {
    return [last_row](int i) {
      return fmt::format(R"("cur_amax":{},"outlier_row_1_id":{},"outlier_row_1_energy%":1{})",
                         i <= 8 ? 1.0 : std::pow(1.05, 5.0 * (i - 8)),
                         i < 10   ? 3
                         : i < 23 ? 140
                                  : last_row,
                         i < 11 ? "" : R"(,"outlier_row_1_since":20)");
    };
  };
  const auto channel = [](int i) {
    return fmt::format(
        R"("outlier_channel_1_id":{},"outlier_channel_1_energy%":{},"outlier_channel_1_tp_rank":{})",
        i < 14 ? i : 70, i < 14 ? 5 : 80, i < 14 ? 0 : 1);
  };
  series("a.mlp.fc1", "weight", 24, weights(140));
  series("a.mlp.fc2", "activation", 24, channel);
  EXPECT_EQ(verdict().cause->kind, "outlier_channel");
  EXPECT_EQ(verdict().cause->iteration, 20);
  EXPECT_THAT(verdict().cause->ranks, ElementsAre(1));
  EXPECT_THAT(verdict().cause->why,
              Contains(HasSubstr("row 140 of a.mlp.fc1 weight has grown since iteration 20")));
  // A row that no longer leads at the end is not the one that grows.
  series("b.mlp.fc1", "weight", 24, weights(141));
  series("b.mlp.fc2", "activation", 24, channel);
  ASSERT_FALSE(verdict().also.empty());
  EXPECT_EQ(verdict().also[0].places[0].layer, "b.mlp.fc2");
  EXPECT_EQ(verdict().also[0].iteration, 40);
}

// The activations do not show it: the row itself is the cause, on the rank that holds it.
TEST_F(Judge, ARowThatTakesOverItsWeight) {
  const auto weight = [](double last, bool since) {
    return [=](int i) {
      return fmt::format(R"("outlier_row_1_id":{},"outlier_row_1_energy%":{},"outlier_row_1_tp_rank":1{})",
                         i < 9 ? i : 300, i < 9 ? 0.5 : last,
                         since && i >= 10 ? R"(,"outlier_row_1_since":35)" : "");
    };
  };
  series("a.mlp.fc1", "weight", 24, weight(10, true));
  series("b.mlp.fc1", "weight", 24,
         weight(60, false));  // it may have been large all the time it was looked at
  EXPECT_EQ(verdict().outcome, Outcome::kHealthy);
  series("c.mlp.fc1", "weight", 24, weight(30, true));
  const Verdict v = verdict();
  ASSERT_TRUE(v.cause.has_value());
  EXPECT_EQ(v.cause->kind, "outlier_channel");
  EXPECT_THAT(v.cause->places, ElementsAre(Place{"c.mlp.fc1", "weight"}));
  EXPECT_EQ(v.cause->iteration, 35);
  EXPECT_EQ(v.cause->channel, 300);
  EXPECT_THAT(v.cause->ranks, ElementsAre(1));
  // An activation of the same block that is taken over comes first, and is enough.
  series("c.mlp.fc2", "activation", 24, [](int i) {
    return fmt::format(R"("outlier_channel_1_id":{},"outlier_channel_1_energy%":{})", i < 14 ? i : 70,
                       i < 14 ? 5 : 80);
  });
  EXPECT_THAT(verdict().cause->places, ElementsAre(Place{"c.mlp.fc2", "activation"}));
  EXPECT_TRUE(verdict().also.empty());
}

// Without a weight that says more, the channel's own past.
TEST_F(Judge, AChannelKnowsItsOwnPast) {
  series("a.fc2", "activation", 24, [](int i) {
    return fmt::format(R"("outlier_channel_1_id":{},"outlier_channel_1_energy%":{}{})", i < 14 ? i : 70,
                       i < 14 ? 5 : 80, i < 16 ? "" : R"(,"outlier_channel_1_since":45)");
  });
  EXPECT_EQ(verdict().cause->iteration, 45);
  EXPECT_TRUE(verdict().cause->ranks.empty());
}

TEST_F(Judge, SumsThatLoseMoreThanOperands) {
  series("a.fc1", "wgrad", 3, [](int) { return R"("error_from_accumulation%":90,"relative_error":0.05)"; });
  // In high precision all of next to nothing is the sum's.
  series(
      "output", "wgrad", 3, [](int) { return R"("error_from_accumulation%":100,"relative_error":1e-7)"; },
      "none");
  EXPECT_EQ(verdict().cause->kind, "accumulation");
  EXPECT_EQ(verdict().cause->places.size(), 1U);
}

void spike(const RunFolder& folder, int gradients, int losses, bool lasts) {
  for (int i = 0; i < 60; ++i) {
    const bool high = i >= losses && (lasts || i == losses);
    folder.healthy_step(i, high ? 4 : 2, i == gradients ? 60 : 1);
  }
}

TEST_F(Judge, ASpikeOfTheOptimizerIsNotPrecision) {
  folder_.record(0, "a.fc1", "activation", R"("cur_amax":1,"sqnr":31)");
  spike(folder_, 30, 31, /*lasts=*/true);
  const Verdict v = verdict();
  EXPECT_EQ(v.outcome, Outcome::kNotPrecision);
  EXPECT_EQ(v.cause->kind, "optimizer_spike");
  EXPECT_EQ(v.cause->iteration, 30);
}

TEST_F(Judge, OneOddBatchIsNoSpike) {
  folder_.record(0, "a.fc1", "activation", R"("cur_amax":1,"sqnr":31)");
  spike(folder_, 31, 31, /*lasts=*/false);
  EXPECT_EQ(verdict().outcome, Outcome::kHealthy);
}

TEST_F(Judge, NobodyIsAcquittedWhoWasNotLookedAt) {
  folder_.record(0, "a.fc1", "activation", R"("std":1)");
  spike(folder_, 30, 31, /*lasts=*/true);
  const Verdict v = verdict();
  EXPECT_EQ(v.outcome, Outcome::kCannotTell);
  EXPECT_THAT(v.cause->why, Contains(HasSubstr("LogFp8TensorStats and NonFiniteGuard")));
}

TEST_F(Judge, ALossThatIsNotFiniteAndNoTensorThatSaysWhy) {
  steps(10);
  folder_.scalars(10, R"("loss":"NaN")");
  folder_.end_of_step(10);
  const Verdict v = verdict();
  EXPECT_EQ(v.outcome, Outcome::kCannotTell);
  EXPECT_EQ(v.cause->iteration, 10);
}

TEST_F(Judge, AlarmsMoveButAccuseNobody) {
  steps(10);
  folder_.finding(5, "amax_jump", "a.fc1", "gradient", "0,1", "amax is 43 times the median");
  EXPECT_EQ(verdict().outcome, Outcome::kHealthy);
  folder_.finding(8, "I1", "a.norm", "parameter", "1", "replicas differ");
  EXPECT_EQ(verdict().cause->kind, "replicas_differ");
  EXPECT_THAT(verdict().moved.front().what, HasSubstr("amax_jump"));
}

TEST(JudgeStates, TheLastStateBeforeIt) {
  const RunFolder folder;
  folder.describe(R"("recipe":"delayed","save-every":"20","save-dir":"states")");
  folder.healthy_step(0);
  folder.finding(47, "I7", "a", "weight", "0", "codes changed");
  EXPECT_EQ(judge(folder.path()).last_good_state, "states/iter_40");
}

TEST(JudgeStates, EvaluationAndRecomputeAreNotTraining) {
  const RunFolder folder;
  folder.describe();
  for (int i = 0; i < 20; ++i) {
    folder.line(fmt::format(R"({{"iteration":{},"layer":"a","tensor":"activation","phase":"eval",)"
                            R"("stats":{{"saturated_energy%":90}},"flags":{{}},"recipe":"delayed"}})",
                            5 * i));
    folder.healthy_step(5 * i);
  }
  EXPECT_EQ(judge(folder.path()).outcome, Outcome::kHealthy);
}

}  // namespace
}  // namespace amaxscope::report
