#include "runtime/quantizers/plan_check.hpp"

#include <gmock/gmock.h>

#include "core/error.hpp"
#include "tests/runtime/quantizers/scripted_feature.hpp"

namespace amaxscope {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing_support::ScriptedFeature;

LayerDescription layer() {
  LayerDescription result;
  result.name = "decoder.fc1";
  return result;
}

std::string refusal(std::vector<Feature*> features, bool has_recipe = true) {
  try {
    check_plans(layer(), features, has_recipe);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig) << error.what();
    return error.what();
  }
}

std::function<Decision(Gemm, TensorKind, std::int64_t)> on(Gemm gemm, TensorKind tensor, Schedule schedule) {
  return [=](Gemm asked, TensorKind kind, std::int64_t iteration) {
    return asked == gemm && kind == tensor ? Decision::of(schedule, iteration) : Decision::never();
  };
}

std::function<Decision(Gemm, std::int64_t)> disabled(Gemm gemm, Schedule schedule) {
  return [=](Gemm asked, std::int64_t iteration) {
    if (asked != gemm) return Decision::always();
    const Decision due = Decision::of(schedule, iteration);
    return Decision{!due.enabled, due.next};
  };
}

class PlanCheck : public testing::Test {
 protected:
  PlanCheck() { scaling_.to_codes = true; }
  ScriptedFeature scaling_{"PerTensorScaling", "one"};
  ScriptedFeature other_{"Other", "two"};
};

TEST_F(PlanCheck, NothingToRefuse) {
  EXPECT_EQ(refusal({}), "");
  EXPECT_EQ(refusal({&scaling_, &other_}), "");
  scaling_.modifies = on(Gemm::kFprop, TensorKind::kActivation, Schedule());
  EXPECT_EQ(refusal({&scaling_}), "") << "the other operand is quantized by the recipe";
  other_.modifies = on(Gemm::kFprop, TensorKind::kOutput, Schedule());
  EXPECT_EQ(refusal({&scaling_, &other_}), "") << "a result is no operand";
}

TEST_F(PlanCheck, TwoModifiersOfOneTensor) {
  scaling_.modifies = on(Gemm::kDgrad, TensorKind::kGradient, Schedule(3, {{0, std::nullopt}}));
  other_.modifies = on(Gemm::kDgrad, TensorKind::kGradient, Schedule(2, {{1, std::nullopt}}));
  other_.to_codes = true;
  EXPECT_THAT(refusal({&scaling_, &other_}),
              AllOf(HasSubstr("layer decoder.fc1"), HasSubstr("PerTensorScaling of section one"),
                    HasSubstr("Other of section two"), HasSubstr("gradient in dgrad at iteration 6")));
  other_.modifies = on(Gemm::kWgrad, TensorKind::kGradient, Schedule());
  EXPECT_EQ(refusal({&scaling_, &other_}), "") << "another GEMM";
}

TEST_F(PlanCheck, TwoModifiersOfOneResult) {
  scaling_.modifies = on(Gemm::kWgrad, TensorKind::kWgrad, Schedule());
  other_.modifies = on(Gemm::kWgrad, TensorKind::kWgrad, Schedule());
  EXPECT_THAT(refusal({&scaling_, &other_}), HasSubstr("wgrad in wgrad at iteration 0"));
}

TEST_F(PlanCheck, SchedulesThatNeverMeetAreNoConflict) {
  scaling_.modifies = on(Gemm::kDgrad, TensorKind::kGradient, Schedule(1, {{0, 99}}));
  other_.modifies = on(Gemm::kDgrad, TensorKind::kGradient, Schedule(1, {{100, std::nullopt}}));
  other_.to_codes = true;
  EXPECT_EQ(refusal({&scaling_, &other_}), "");
  other_.modifies = on(Gemm::kDgrad, TensorKind::kGradient, Schedule(1, {{99, std::nullopt}}));
  EXPECT_THAT(refusal({&scaling_, &other_}), HasSubstr("at iteration 99"));
}

TEST_F(PlanCheck, PeriodsThatMeetLate) {
  scaling_.modifies = on(Gemm::kDgrad, TensorKind::kGradient, Schedule(97, {{1, std::nullopt}}));
  other_.modifies = on(Gemm::kDgrad, TensorKind::kGradient, Schedule(101, {{1, std::nullopt}}));
  other_.to_codes = true;
  EXPECT_THAT(refusal({&scaling_, &other_}), HasSubstr("at iteration 9797;"));
}

TEST_F(PlanCheck, AModifiedOperandBesideADisabledGemm) {
  scaling_.modifies = on(Gemm::kFprop, TensorKind::kActivation, Schedule());
  other_.fp8 = disabled(Gemm::kFprop, Schedule(1, {{20, std::nullopt}}));
  EXPECT_THAT(
      refusal({&scaling_, &other_}),
      AllOf(HasSubstr("layer decoder.fc1: at iteration 20 fprop would multiply activation, quantized by "
                      "PerTensorScaling of section one, with weight, in high precision because of Other of "
                      "section two")));
  other_.fp8 = disabled(Gemm::kWgrad, Schedule());
  EXPECT_EQ(refusal({&scaling_, &other_}), "") << "wgrad is another GEMM";
}

TEST_F(PlanCheck, BothOperandsModifiedBesideADisabledGemmAreCodes) {
  scaling_.modifies = [](Gemm gemm, TensorKind tensor, std::int64_t) {
    return gemm == Gemm::kFprop && !is_result(tensor) ? Decision::always() : Decision::never();
  };
  other_.fp8 = disabled(Gemm::kFprop, Schedule());
  EXPECT_EQ(refusal({&scaling_, &other_}), "");
  EXPECT_EQ(refusal({&scaling_, &other_}, /*has_recipe=*/false), "");
}

TEST_F(PlanCheck, HighPrecisionBesideTheRecipesCodes) {
  other_.modifies = on(Gemm::kWgrad, TensorKind::kGradient, Schedule());
  EXPECT_THAT(refusal({&other_}),
              HasSubstr("activation, quantized by the recipe, with gradient, in high precision by "
                        "Other of section two"));
  EXPECT_EQ(refusal({&other_}, /*has_recipe=*/false), "");
  other_.fp8 = disabled(Gemm::kWgrad, Schedule());
  EXPECT_EQ(refusal({&other_}), "") << "a feature that also takes the GEMM out of FP8";
}

TEST_F(PlanCheck, CodesBesideALayerWithoutRecipe) {
  scaling_.modifies = on(Gemm::kFprop, TensorKind::kWeight, Schedule());
  EXPECT_THAT(refusal({&scaling_}, /*has_recipe=*/false),
              HasSubstr("with activation, in high precision because the layer has no recipe"));
}

TEST_F(PlanCheck, AFeatureMustDecideForward) {
  other_.fp8 = [](Gemm, std::int64_t iteration) { return Decision{true, iteration}; };
  try {
    check_plans(layer(), std::vector<Feature*>{&other_}, true);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInternal);
    EXPECT_THAT(error.what(), HasSubstr("Other of section two"));
  }
}

}  // namespace
}  // namespace amaxscope
