// What a DebugQuantizer decides: plans, who is asked how often, when it is needed again.
#include "runtime/quantizers/debug_quantizer.hpp"

#include <gmock/gmock.h>

#include "core/error.hpp"
#include "tests/runtime/quantizers/scripted_feature.hpp"

namespace amaxscope {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::always_in;
using testing_support::CountingQuantizer;
using testing_support::ScriptedFeature;

using Next = std::optional<std::int64_t>;
constexpr Direction kRow = Direction::kRowwise;
constexpr Direction kColumn = Direction::kColumnwise;

class DebugQuantizerPlans : public testing::Test {
 protected:
  DebugQuantizerPlans() { layer_.name = "fc1"; }

  DebugQuantizer quantizer(TensorKind tensor, std::vector<Feature*> features, bool recipe = true) {
    auto parent = recipe && !is_result(tensor) ? std::make_shared<CountingQuantizer>() : nullptr;
    return {layer_, tensor, parent, std::move(features), services_};
  }

  LayerDescription layer_;
  DebugServices services_;
};

std::function<Decision(std::int64_t)> on(const Schedule& schedule) {
  return [schedule](std::int64_t iteration) { return Decision::of(schedule, iteration); };
}

TEST_F(DebugQuantizerPlans, WithoutFeaturesNothingDiffers) {
  for (const bool recipe : {true, false}) {
    for (const TensorKind tensor : kAllTensors) {
      DebugQuantizer plain = quantizer(tensor, {}, recipe);
      plain.begin_iteration(0);
      EXPECT_FALSE(plain.any_feature_enabled());
      EXPECT_EQ(plain.next_debug_iteration(), Next());
      EXPECT_EQ(plain.plan(kRow),
                recipe && !is_result(tensor) ? Plan::kStandardQuantize : Plan::kHighPrecision);
    }
  }
}

TEST_F(DebugQuantizerPlans, ModifyingBeatsEverythingAndIsNotAskedAbout) {
  ScriptedFeature modifier("Modifier");
  modifier.modifies = always_in({Gemm::kFprop}, TensorKind::kActivation);
  ScriptedFeature disabler("Disabler");
  disabler.fp8 = [](Gemm, std::int64_t) { return Decision::never(); };
  DebugQuantizer activation = quantizer(TensorKind::kActivation, {&modifier, &disabler});
  activation.begin_iteration(0);
  EXPECT_EQ(activation.plan(kRow), Plan::kModifyTensor);
  EXPECT_EQ(activation.modifier(kRow), &modifier);
  EXPECT_EQ(activation.plan(kColumn), Plan::kHighPrecision);
  EXPECT_EQ(activation.modifier(kColumn), nullptr);
  EXPECT_EQ(disabler.fp8_asked, 1) << "for wgrad only";
  EXPECT_THAT(activation.acting_features(), ElementsAre("Modifier", "Disabler"));
}

TEST_F(DebugQuantizerPlans, OneFeatureIsEnoughForHighPrecision) {
  ScriptedFeature keeps("Keeps");
  ScriptedFeature disables("Disables");
  disables.fp8 = [](Gemm gemm, std::int64_t) {
    return gemm == Gemm::kDgrad ? Decision::never() : Decision::always();
  };
  for (const std::vector<Feature*>& order : {std::vector<Feature*>{&keeps, &disables}, {&disables, &keeps}}) {
    DebugQuantizer weight = quantizer(TensorKind::kWeight, order);
    weight.begin_iteration(0);
    EXPECT_EQ(weight.plan(kRow), Plan::kStandardQuantize);
    EXPECT_EQ(weight.plan(kColumn), Plan::kHighPrecision);
    EXPECT_TRUE(weight.any_feature_enabled());
    EXPECT_THAT(weight.acting_features(), ElementsAre("Disables"));
  }
}

TEST_F(DebugQuantizerPlans, HighPrecisionIsThePlainPathOfALayerWithoutRecipe) {
  ScriptedFeature disables("Disables");
  disables.fp8 = [](Gemm, std::int64_t) { return Decision::never(); };
  DebugQuantizer weight = quantizer(TensorKind::kWeight, {&disables}, /*recipe=*/false);
  weight.begin_iteration(0);
  EXPECT_EQ(weight.plan(kRow), Plan::kHighPrecision);
  EXPECT_FALSE(weight.any_feature_enabled());
  EXPECT_EQ(weight.next_debug_iteration(), Next());
}

TEST_F(DebugQuantizerPlans, ResultsAreModifiedOrLeft) {
  ScriptedFeature modifier("Modifier");
  modifier.modifies = always_in({Gemm::kWgrad}, TensorKind::kWgrad);
  DebugQuantizer wgrad = quantizer(TensorKind::kWgrad, {&modifier});
  wgrad.begin_iteration(0);
  EXPECT_EQ(wgrad.plan(kRow), Plan::kModifyTensor);
  EXPECT_EQ(wgrad.plan(kColumn), Plan::kHighPrecision) << "a result has one direction";
  EXPECT_EQ(modifier.fp8_asked, 0);
  DebugQuantizer output = quantizer(TensorKind::kOutput, {&modifier});
  output.begin_iteration(0);
  EXPECT_FALSE(output.any_feature_enabled());
  EXPECT_THROW(
      DebugQuantizer(layer_, TensorKind::kOutput, std::make_shared<CountingQuantizer>(), {}, services_),
      Error);
}

TEST_F(DebugQuantizerPlans, TwoModifiersAreAConflictThatNamesBothSections) {
  ScriptedFeature first("PerTensorScaling", "attention");
  ScriptedFeature second("FakeQuant", "everything");
  first.modifies = always_in({Gemm::kDgrad}, TensorKind::kGradient);
  second.modifies = [](Gemm gemm, TensorKind, std::int64_t iteration) {
    return gemm == Gemm::kDgrad ? Decision::of(Schedule(1, {{5, std::nullopt}}), iteration)
                                : Decision::never();
  };
  DebugQuantizer gradient = quantizer(TensorKind::kGradient, {&first, &second});
  gradient.begin_iteration(4);  // also looks ahead at 5, which must not fail yet
  EXPECT_EQ(gradient.next_debug_iteration(), Next(5));
  try {
    gradient.begin_iteration(5);
    ADD_FAILURE() << "no conflict was found";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    EXPECT_STREQ(
        error.what(),
        "layer fc1: PerTensorScaling of section attention and FakeQuant of section everything both modify "
        "gradient in dgrad at iteration 5; one feature may modify a tensor of a GEMM at a time");
  }
}

TEST_F(DebugQuantizerPlans, FeaturesAreAskedOnceAnIterationNotOnceAMicroBatch) {
  ScriptedFeature feature("Feature");
  feature.inspects = on(Schedule());
  DebugQuantizer activation = quantizer(TensorKind::kActivation, {&feature});
  const Tensor x = Tensor::of({1.0F, 2.0F}, Shape{1, 2});
  for (int iteration = 0; iteration < 3; ++iteration) {
    for (int microbatch = 0; microbatch < 4; ++microbatch) {
      activation.begin_iteration(iteration);
      static_cast<void>(activation.quantize(x, {true, true}, {.microbatch = microbatch}));
    }
  }
  EXPECT_EQ(feature.inspect_asked, 3);
  EXPECT_EQ(feature.modify_asked, 6) << "two directions";
  EXPECT_EQ(feature.fp8_asked, 6);
  EXPECT_EQ(feature.calls.size(), 12U) << "but every micro-batch is inspected";
}

TEST_F(DebugQuantizerPlans, LookingAheadDoesNotAskTwice) {
  ScriptedFeature feature("Feature");
  feature.inspects = on(Schedule(2, {{0, std::nullopt}}));
  DebugQuantizer activation = quantizer(TensorKind::kActivation, {&feature});
  for (int iteration = 0; iteration < 6; ++iteration) activation.begin_iteration(iteration);
  EXPECT_EQ(feature.inspect_asked, 6);
}

// The trainer's gate: it stays on the plain path until next_debug_iteration.
std::vector<std::int64_t> debug_iterations(DebugQuantizer& quantizer, std::int64_t end) {
  std::vector<std::int64_t> visited;
  Next next = 0;
  for (std::int64_t iteration = 0; iteration < end; ++iteration) {
    if (!next || iteration < *next) continue;
    quantizer.begin_iteration(iteration);
    if (quantizer.any_feature_enabled()) visited.push_back(iteration);
    next = quantizer.next_debug_iteration();
  }
  return visited;
}

TEST_F(DebugQuantizerPlans, TheGateIsOpenExactlyWhenSomethingIsDue) {
  ScriptedFeature third("Third");
  ScriptedFeature fifth("Fifth");
  third.inspects = on(Schedule(3, {{1, 19}}));
  fifth.inspects = on(Schedule(5, {{1, std::nullopt}}));
  DebugQuantizer activation = quantizer(TensorKind::kActivation, {&third, &fifth});
  EXPECT_THAT(debug_iterations(activation, 31), ElementsAre(3, 5, 6, 9, 10, 12, 15, 18, 20, 25, 30));
  activation.begin_iteration(10);
  EXPECT_EQ(activation.next_debug_iteration(), Next(12));
  activation.begin_iteration(19);
  EXPECT_EQ(activation.next_debug_iteration(), Next(20));
  activation.begin_iteration(20);
  EXPECT_EQ(activation.next_debug_iteration(), Next(25));
}

TEST_F(DebugQuantizerPlans, AnEndedFeatureLetsTheLayerGo) {
  ScriptedFeature feature("Feature");
  feature.modifies = [](Gemm, TensorKind, std::int64_t iteration) {
    return Decision::of(Schedule(1, {{2, 4}}), iteration);
  };
  DebugQuantizer weight = quantizer(TensorKind::kWeight, {&feature});
  EXPECT_THAT(debug_iterations(weight, 20), ElementsAre(2, 3, 4));
  weight.begin_iteration(4);
  EXPECT_EQ(weight.next_debug_iteration(), Next());
}

// "not now and never again" of one feature says nothing about another one.
TEST_F(DebugQuantizerPlans, AFeatureWithoutAnEndKeepsTheLayerWhateverOthersSay) {
  ScriptedFeature disables("Disables");
  disables.fp8 = [](Gemm, std::int64_t) { return Decision::never(); };
  ScriptedFeature ended("Ended");
  ended.inspects = on(Schedule(1, {{0, 1}}));
  ScriptedFeature absent("Absent");
  for (const std::vector<Feature*>& order :
       {std::vector<Feature*>{&disables, &ended, &absent}, {&absent, &ended, &disables}}) {
    DebugQuantizer weight = quantizer(TensorKind::kWeight, order);
    EXPECT_THAT(debug_iterations(weight, 5), ElementsAre(0, 1, 2, 3, 4));
    DebugQuantizer observed = quantizer(TensorKind::kWeight, {order[1], &absent}, /*recipe=*/false);
    EXPECT_THAT(debug_iterations(observed, 5), ElementsAre(0, 1)) << "and nothing due is no debug iteration";
  }
}

TEST_F(DebugQuantizerPlans, AlwaysMeansEveryIteration) {
  ScriptedFeature disables("Disables");
  disables.fp8 = [](Gemm, std::int64_t) { return Decision::never(); };
  DebugQuantizer weight = quantizer(TensorKind::kWeight, {&disables});
  EXPECT_THAT(debug_iterations(weight, 4), ElementsAre(0, 1, 2, 3));
}

TEST_F(DebugQuantizerPlans, ALayerWithNothingToDoIsAskedOnce) {
  ScriptedFeature feature("Feature");
  std::vector<std::unique_ptr<DebugQuantizer>> all;
  for (const TensorKind tensor : kAllTensors) {
    auto parent = is_result(tensor) ? nullptr : std::make_shared<CountingQuantizer>();
    all.push_back(
        std::make_unique<DebugQuantizer>(layer_, tensor, parent, std::vector<Feature*>{&feature}, services_));
  }
  for (const auto& one : all) EXPECT_TRUE(debug_iterations(*one, 20).empty());
  EXPECT_EQ(feature.inspect_asked, 6);
  EXPECT_TRUE(feature.calls.empty());
}

TEST_F(DebugQuantizerPlans, SaysWhatItIsAbout) {
  layer_.recipe = RecipeKind::kDelayed;
  DebugQuantizer gradient = quantizer(TensorKind::kGradient, {});
  EXPECT_EQ(gradient.inspected().layer, "fc1");
  EXPECT_EQ(gradient.inspected().name, "gradient");
  EXPECT_EQ(gradient.inspected().training_phase, Phase::kBackward);
  EXPECT_EQ(gradient.inspected().description, &layer_);
  EXPECT_EQ(gradient.inspected().recipe, RecipeKind::kDelayed);
  EXPECT_EQ(gradient.recipe(), RecipeKind::kDelayed);
  EXPECT_EQ(gradient.format(), DType::kE4M3);
  layer_.compute_dtype = DType::kBF16;
  DebugQuantizer output = quantizer(TensorKind::kOutput, {});
  EXPECT_EQ(output.recipe(), RecipeKind::kNone);
  EXPECT_EQ(output.format(), DType::kBF16);
  EXPECT_EQ(to_string(Plan::kStandardQuantize), "Quantize");
  EXPECT_EQ(to_string(Plan::kHighPrecision), "High Precision");
  EXPECT_EQ(to_string(Plan::kModifyTensor), "modify_tensor()");
}

TEST_F(DebugQuantizerPlans, UseBeforeTheFirstIterationIsRefused) {
  DebugQuantizer weight = quantizer(TensorKind::kWeight, {});
  EXPECT_THROW(static_cast<void>(weight.quantize(Tensor(DType::kF32, {1, 1}), {}, {})), Error);
}

}  // namespace
}  // namespace amaxscope
