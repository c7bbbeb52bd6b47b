#include "runtime/feature/feature.hpp"

#include <gmock/gmock.h>

#include <cmath>

#include "core/error.hpp"

namespace amaxscope {
namespace {

using Next = std::optional<std::int64_t>;

Schedule schedule(std::int64_t freq, std::vector<IterationInterval> intervals) {
  return {freq, std::move(intervals)};
}

void expect_decision(const Schedule& given, std::int64_t iteration, bool enabled, Next next) {
  const Decision decision = Decision::of(given, iteration);
  EXPECT_EQ(decision.enabled, enabled) << "iteration " << iteration;
  EXPECT_EQ(decision.next, next) << "iteration " << iteration;
}

TEST(Decision, EveryIterationNeverChanges) { expect_decision(Schedule(), 7, true, std::nullopt); }

TEST(Decision, OneInTenIsOnForOneIteration) {
  const Schedule tenth = schedule(10, {{0, std::nullopt}});
  expect_decision(tenth, 0, true, 1);
  expect_decision(tenth, 1, false, 10);
  expect_decision(tenth, 9, false, 10);
  expect_decision(tenth, 10, true, 11);
}

TEST(Decision, AnIntervalEndsAfterItsLastIteration) {
  const Schedule from_5_to_8 = schedule(1, {{5, 8}});
  expect_decision(from_5_to_8, 0, false, 5);
  expect_decision(from_5_to_8, 5, true, 9);
  expect_decision(from_5_to_8, 8, true, 9);
  expect_decision(from_5_to_8, 9, false, std::nullopt);
}

TEST(Decision, AdjacentIntervalsAreOneRun) {
  const Schedule adjacent = schedule(1, {{0, 2}, {3, 4}, {7, std::nullopt}});
  expect_decision(adjacent, 1, true, 5);
  expect_decision(adjacent, 5, false, 7);
  expect_decision(adjacent, 7, true, std::nullopt);
}

TEST(Decision, FrequencyCountsFromZeroNotFromTheStart) {
  const Schedule late = schedule(10, {{5, 25}});
  expect_decision(late, 0, false, 10);
  expect_decision(late, 20, true, 21);
  expect_decision(late, 21, false, std::nullopt);
}

TEST(Decision, HoldsForEveryIterationUpToNext) {
  for (const Schedule& given :
       {schedule(1, {{3, 5}, {6, 6}, {9, 30}}), schedule(4, {{1, 9}, {12, 40}}), Schedule()}) {
    for (std::int64_t iteration = 0; iteration < 50; ++iteration) {
      const Decision decision = Decision::of(given, iteration);
      const std::int64_t end = decision.next.value_or(60);
      ASSERT_GT(end, iteration);
      for (std::int64_t later = iteration; later < end; ++later)
        ASSERT_EQ(given.due(later), decision.enabled);
      if (decision.next) {
        ASSERT_NE(given.due(*decision.next), decision.enabled);
      }
    }
  }
}

TEST(Decision, TheEarlierOfTwoWhereNoneIsNever) {
  EXPECT_EQ(earlier(3, 5), Next(3));
  EXPECT_EQ(earlier(std::nullopt, 5), Next(5));
  EXPECT_EQ(earlier(3, std::nullopt), Next(3));
  EXPECT_EQ(earlier(std::nullopt, std::nullopt), Next());
}

class Silent : public Feature {
 public:
  using Feature::Feature;
  [[nodiscard]] bool alters_numerics() const override { return false; }
};

FeatureConfig silent_config() {
  FeatureConfig config;
  config.name = "Silent";
  config.section = "first";
  config.position = {12, 3};
  return config;
}

TEST(Feature, ModifyingWithoutAnImplementationNamesTheFeature) {
  Silent feature(silent_config());
  LayerDescription layer;
  layer.name = "fc1";
  const Tensor x = Tensor::of({1.0F}, Shape{1});
  const TensorView view = x.view();
  const FeatureParams params;
  const ModifyContext context{.layer = layer,
                              .tensor = TensorKind::kWeight,
                              .iteration = 0,
                              .moment = {},
                              .x = view,
                              .default_quantizer = nullptr,
                              .usage = {},
                              .params = params,
                              .amax_scope = AmaxScope::kTensor,
                              .tp_amax = nullptr};
  try {
    static_cast<void>(feature.modify_tensor(context));
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInternal);
    EXPECT_STREQ(error.what(),
                 "Silent of section first (line 12) says that it modifies weight of layer fc1 but has no "
                 "modify_tensor");
  }
}

TEST(Feature, MomentsAreComputedOnceForAllThatAsk) {
  const InspectedTensor tensor;
  Tensor x = Tensor::of({3.0F, -4.0F}, Shape{2});
  const TensorView view = x.view();
  const InspectContext context{.tensor = tensor,
                               .iteration = 0,
                               .moment = {},
                               .x = view,
                               .has_original = true,
                               .rowwise = nullptr,
                               .columnwise = nullptr,
                               .quantizer = nullptr,
                               .tp_amax = nullptr};
  EXPECT_EQ(context.moments().amax_finite, 4.0F);
  x.values<float>()[1] = 100.0F;
  EXPECT_EQ(context.moments().amax_finite, 4.0F) << "computed again";
}

}  // namespace
}  // namespace amaxscope
