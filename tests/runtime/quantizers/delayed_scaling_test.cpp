// Golden scales are exact quotients rounded to fp32 outside of this project (448/9 -> 0x42471C72, 448/3 ->
// 0x43155555, 57344/9 -> 0x45C71C72) or powers of two times 7.
#include "runtime/quantizers/delayed_scaling.hpp"

#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <limits>

#include "collectives/loopback_communicator.hpp"
#include "core/error.hpp"
#include "runtime/quantizers/debug_quantized_tensor.hpp"

namespace amaxscope {
namespace {

using testing::ElementsAre;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::uint32_t bits(float value) { return std::bit_cast<std::uint32_t>(value); }

std::vector<float> history(const DelayedScalingState& state, std::size_t slot = 0) {
  std::vector<float> values;
  for (const std::uint32_t word : state.slot(slot).history) values.push_back(std::bit_cast<float>(word));
  return values;
}

Tensor vector_of(std::vector<float> values) {
  return Tensor::of<float>(values, Shape{static_cast<std::int64_t>(values.size())});
}

void feed(Float8Quantizer& quantizer, std::vector<float> values, Phase phase = Phase::kForward) {
  static_cast<void>(quantizer.quantize(vector_of(std::move(values)), {}, {.phase = phase}));
}

struct OneSlot {
  explicit OneSlot(DelayedScalingOptions options, DType format = DType::kE4M3) : state(options, nullptr) {
    state.add("fc activation", format);
  }
  void step(float amax) {
    state.observe(0, bits(amax));
    state.update();
  }
  [[nodiscard]] float scale() const { return state.slot(0).scale; }
  DelayedScalingState state;
};

TEST(DelayedScaling, StartsAtScaleOneWithoutHistory) {
  const OneSlot one({.history_length = 3});
  EXPECT_EQ(one.scale(), 1.0F);
  EXPECT_FALSE(one.state.slot(0).has_history);
  EXPECT_THAT(history(one.state), ElementsAre(0, 0, 0));
}

TEST(DelayedScaling, MicroBatchesMaxIntoOneHistoryEntry) {
  DelayedScalingState state({.history_length = 2}, nullptr);
  Float8Quantizer quantizer(state, state.add("fc activation", DType::kE4M3));
  feed(quantizer, {9});
  feed(quantizer, {1});
  feed(quantizer, {-2});
  EXPECT_THAT(history(state), ElementsAre(9, 0));
  EXPECT_EQ(quantizer.slot().scale, 1.0F) << "the running step uses the old scale";
  state.update();
  EXPECT_THAT(history(state), ElementsAre(0, 9));
  EXPECT_EQ(bits(quantizer.slot().scale), 0x42471C72U);
  EXPECT_TRUE(quantizer.slot().has_history);
}

TEST(DelayedScaling, OneRowKeepsOnlyTheRunningStep) {
  OneSlot one({.history_length = 1});
  one.step(9);
  EXPECT_THAT(history(one.state), ElementsAre(0));
  EXPECT_EQ(bits(one.scale()), 0x42471C72U);
  one.step(4);
  EXPECT_EQ(one.scale(), 112.0F);
}

TEST(DelayedScaling, TheWindowIsTheNewestAndTheRowsBeforeIt) {
  OneSlot one({.history_length = 3});
  one.step(8);
  EXPECT_THAT(history(one.state), ElementsAre(0, 0, 8));
  EXPECT_EQ(one.scale(), 56.0F);
  one.step(4);
  EXPECT_THAT(history(one.state), ElementsAre(0, 8, 4));
  EXPECT_EQ(one.scale(), 56.0F);
  one.step(2);
  EXPECT_THAT(history(one.state), ElementsAre(0, 4, 2));
  EXPECT_EQ(one.scale(), 56.0F) << "the 8 counts once more while it is dropped";
  one.step(1);
  EXPECT_THAT(history(one.state), ElementsAre(0, 2, 1));
  EXPECT_EQ(one.scale(), 112.0F);
}

TEST(DelayedScaling, ASlotThatDidNotRunIsLeftAlone) {
  for (const AmaxAlgorithm algorithm : {AmaxAlgorithm::kMax, AmaxAlgorithm::kMostRecent}) {
    OneSlot one({.history_length = 3, .algorithm = algorithm});
    one.step(8);
    one.step(2);
    const float scale = one.scale();
    one.state.update();  // not run
    one.step(0);         // all zero
    EXPECT_THAT(history(one.state), ElementsAre(0, 8, 2));
    EXPECT_EQ(one.scale(), scale);
  }
}

TEST(DelayedScaling, MostRecentFollowsTheLastStep) {
  OneSlot one({.history_length = 4, .algorithm = AmaxAlgorithm::kMostRecent});
  one.step(8);
  one.step(2);
  EXPECT_EQ(one.scale(), 224.0F);
  EXPECT_THAT(history(one.state), ElementsAre(0, 0, 8, 2));
}

TEST(DelayedScaling, NanNeverReachesTheHistory) {
  DelayedScalingState state({.history_length = 2}, nullptr);
  Float8Quantizer quantizer(state, state.add("fc activation", DType::kE4M3));
  feed(quantizer, {kNan, -3});
  state.observe(0, 0x7FC00000U);
  state.observe(0, 0x7F800001U);
  state.update();
  EXPECT_THAT(history(state), ElementsAre(0, 3));
  EXPECT_EQ(bits(quantizer.slot().scale), 0x43155555U);
  feed(quantizer, {kNan, kNan});
  state.update();
  EXPECT_THAT(history(state), ElementsAre(0, 3)) << "all NaN is as if it had not run";
}

TEST(DelayedScaling, InfFreezesTheScaleUntilItLeavesTheWindow) {
  OneSlot one({.history_length = 2});
  one.step(4);
  one.step(kInf);
  EXPECT_EQ(one.scale(), 112.0F);
  EXPECT_EQ(one.state.slot(0).clamp, ScaleClamp::kInfAmax);
  EXPECT_THAT(history(one.state), ElementsAre(0, kInf));
  one.step(2);
  EXPECT_EQ(one.scale(), 112.0F);
  one.step(2);
  EXPECT_EQ(one.scale(), 224.0F);
  EXPECT_EQ(one.state.slot(0).clamp, ScaleClamp::kNone);
}

TEST(DelayedScaling, InfInTheFirstStepLeavesTheInitialScale) {
  OneSlot one({.history_length = 1, .algorithm = AmaxAlgorithm::kMostRecent});
  one.step(kInf);
  EXPECT_EQ(one.scale(), 1.0F);
  EXPECT_FALSE(one.state.slot(0).has_history);
}

TEST(DelayedScaling, MarginLeavesRoomAboveTheAmax) {
  OneSlot one({.history_length = 2, .margin = 2});
  one.step(7);
  EXPECT_EQ(one.scale(), 16.0F);  // (448 / 4) / 7
  OneSlot negative({.history_length = 2, .margin = -1});
  negative.step(7);
  EXPECT_EQ(negative.scale(), 128.0F);
}

TEST(DelayedScaling, ScaleAndItsInverseStayFinite) {
  OneSlot tiny({.history_length = 1});
  tiny.step(1e-37F);  // 448e37 is past FLT_MAX
  EXPECT_EQ(tiny.scale(), std::numeric_limits<float>::max());
  EXPECT_EQ(tiny.state.slot(0).clamp, ScaleClamp::kScaleClamped);
  Float8Quantizer quantizer(tiny.state, 0);
  const auto codes = quantizer.quantize(vector_of({0, 1e-37F}), {}, {});
  const float scale_inv = dynamic_cast<const Float8Tensor&>(*codes).scale_inv();
  EXPECT_EQ(bits(scale_inv), 0x00200000U) << "1/FLT_MAX is subnormal and must not be flushed";

  OneSlot huge({.history_length = 1, .margin = 20});
  huge.step(std::numeric_limits<float>::max());
  EXPECT_EQ(huge.scale(), 0x1p-127F);
  EXPECT_TRUE(std::isfinite(1.0F / huge.scale()));
  EXPECT_EQ(huge.state.slot(0).clamp, ScaleClamp::kScaleClamped);
}

TEST(DelayedScaling, FormatsHaveTheirOwnMaximum) {
  OneSlot e4m3({.history_length = 1});
  OneSlot e5m2({.history_length = 1}, DType::kE5M2);
  e4m3.step(1);
  e5m2.step(1);
  EXPECT_EQ(e4m3.scale(), 448.0F);
  EXPECT_EQ(e5m2.scale(), 57344.0F);
  e5m2.step(9);
  EXPECT_EQ(bits(e5m2.scale()), 0x45C71C72U);
}

TEST(DelayedScaling, EvalAndRecomputeLeaveNoTrace) {
  DelayedScalingState state({.history_length = 2}, nullptr);
  Float8Quantizer quantizer(state, state.add("fc activation", DType::kE4M3));
  feed(quantizer, {1}, Phase::kForward);
  feed(quantizer, {1000}, Phase::kEval);
  feed(quantizer, {500}, Phase::kRecompute);
  feed(quantizer, {2}, Phase::kBackward);
  state.update();
  EXPECT_THAT(history(state), ElementsAre(0, 2));
}

TEST(DelayedScaling, AStaleScaleSaturates) {
  DelayedScalingState state({}, nullptr);
  Float8Quantizer quantizer(state, state.add("fc activation", DType::kE4M3));
  const auto codes = quantizer.quantize(vector_of({1000, 448, 464, 465, -1000, kNan, kInf}), {}, {});
  const auto& fp8 = dynamic_cast<const Float8Tensor&>(*codes);
  EXPECT_THAT(fp8.codes(Direction::kRowwise).values<std::uint8_t>(),
              ElementsAre(0x7E, 0x7E, 0x7E, 0x7E, 0xFE, 0x7F, 0x7E));
  EXPECT_EQ(fp8.scale(), 1.0F);
}

TEST(DelayedScaling, UpdateRefreshesTheCodesOfAWeight) {
  DelayedScalingState state({.history_length = 1}, nullptr);
  Float8Quantizer quantizer(state, state.add("fc weight", DType::kE4M3));
  const auto cached = quantizer.quantize(Tensor::of({1.0F, 2.0F}, Shape{1, 2}), {true, true}, {});
  state.update();  // scale 224
  quantizer.update(Tensor::of({1.0F, 0.5F}, Shape{1, 2}), *cached, {});
  const auto& fp8 = dynamic_cast<const Float8Tensor&>(*cached);
  EXPECT_EQ(fp8.scale(), 224.0F);
  // 224 = 1.75 * 2^7 and 112 = 1.75 * 2^6
  EXPECT_THAT(fp8.codes(Direction::kColumnwise).values<std::uint8_t>(), ElementsAre(0x76, 0x6E));
  EXPECT_THAT(history(state), ElementsAre(1)) << "and counts as a use of the tensor";
  EXPECT_THROW(quantizer.update(Tensor::of({1.0F}, Shape{1}), *cached, {}), Error);
  DebugQuantizedTensor other(Shape{1, 2}, cached, cached);
  EXPECT_THROW(quantizer.update(Tensor::of({1.0F, 0.5F}, Shape{1, 2}), other, {}), Error);
}

TEST(DelayedScaling, OneCollectiveForAllSlots) {
  run_loopback_ranks(2, [](Communicator& group) {
    DelayedScalingState state({.history_length = 2}, &group);
    state.add("a", DType::kE4M3);
    state.add("b", DType::kE4M3);
    state.add("c", DType::kE5M2);
    if (group.rank() == 0) state.observe(0, bits(2));
    if (group.rank() == 1) state.observe(0, bits(8));
    if (group.rank() == 1) state.observe(1, bits(4));  // a layer that only ran on one rank
    state.update();
    EXPECT_EQ(group.counters().calls(Traffic::kRecipe), 1U);
    EXPECT_EQ(group.counters().bytes(Traffic::kRecipe), 12U);
    EXPECT_EQ(group.counters().calls(Traffic::kDebug), 0U);
    EXPECT_EQ(state.slot(0).scale, 56.0F);
    EXPECT_EQ(state.slot(1).scale, 112.0F);
    EXPECT_FALSE(state.slot(2).has_history);
    EXPECT_THAT(history(state, 1), ElementsAre(0, 4));
  });
}

TEST(DelayedScaling, NothingToReduceNeedsNoCollective) {
  run_loopback_ranks(2, [](Communicator& group) {
    DelayedScalingState state({}, &group);
    state.update();
    EXPECT_EQ(group.counters().calls(Traffic::kRecipe), 0U);
  });
  const auto alone = make_single_rank_communicator();
  DelayedScalingState state({.history_length = 1}, alone.get());
  state.add("a", DType::kE4M3);
  state.observe(0, bits(4));
  state.update();
  EXPECT_EQ(alone->counters().calls(Traffic::kRecipe), 0U);
  EXPECT_EQ(state.slot(0).scale, 112.0F);
}

TEST(DelayedScaling, BadOptionsAreRefused) {
  EXPECT_THROW(DelayedScalingState({.history_length = 0}, nullptr), Error);
  DelayedScalingState state({}, nullptr);
  EXPECT_THROW(state.add("a", DType::kF32), Error);
  EXPECT_THROW(Float8Quantizer(state, 0), Error);
}

}  // namespace
}  // namespace amaxscope
