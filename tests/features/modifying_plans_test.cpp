// How the features that change numerics plan together.
#include <gmock/gmock.h>

#include "core/error.hpp"
#include "runtime/quantizers/debug_quantizer.hpp"
#include "runtime/quantizers/plan_check.hpp"
#include "tests/features/feature_support.hpp"

namespace amaxscope {
namespace {

using testing_support::layer_with;
using testing_support::LoadedFeatures;
using testing_support::recipe_quantizer;
using testing_support::section;

TEST(ModifyingFeatures, TwoOnOneTensorAreRefusedUnlessTheyNeverMeet) {
  const std::string scaling = section(
      "one", "{PerTensorScaling: {enabled: True, gemms: [fprop], tensors: [activation], end_step: 9}}");
  const auto fake_from = [](int start) {
    return section(
        "two",
        "{FakeQuant: {enabled: True, quant_format: FP8E4M3, gemms: [fprop], tensors: [activation], "
        "start_step: " +
            std::to_string(start) + "}}");
  };
  const LoadedFeatures both(scaling + fake_from(5));
  try {
    check_plans(layer_with(RecipeKind::kDelayed), both.all(), true);
    ADD_FAILURE() << "no conflict was found";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                testing::AllOf(testing::HasSubstr("section one"), testing::HasSubstr("section two"),
                               testing::HasSubstr("iteration 5")));
  }
  const LoadedFeatures one_after_the_other(scaling + fake_from(10));
  check_plans(layer_with(RecipeKind::kDelayed), one_after_the_other.all(), true);
}

// Any choice of operands for FakeQuant, GEMM by GEMM: a listed operand is modified, the other operand of its
// GEMM is in high precision, and a GEMM without a listed operand keeps the recipe.
TEST(ModifyingFeatures, EveryChoiceOfOperandsPlansAsTheReferenceDoes) {
  struct Pair {
    Gemm gemm;
    TensorKind tensor;
  };
  const std::vector<Pair> pairs = {
      {Gemm::kFprop, TensorKind::kActivation}, {Gemm::kFprop, TensorKind::kWeight},
      {Gemm::kDgrad, TensorKind::kGradient},   {Gemm::kDgrad, TensorKind::kWeight},
      {Gemm::kWgrad, TensorKind::kGradient},   {Gemm::kWgrad, TensorKind::kActivation}};
  for (unsigned mask = 1; mask < 64; ++mask) {
    const auto listed = [&](Gemm gemm, TensorKind tensor) {
      for (std::size_t i = 0; i < pairs.size(); ++i) {
        if (pairs[i].gemm == gemm && pairs[i].tensor == tensor) return (mask >> i & 1U) != 0;
      }
      return false;
    };
    std::string structs;
    for (const Gemm gemm : kAllGemms) {
      std::string tensors;
      for (const TensorKind tensor : operands_of(gemm)) {
        if (listed(gemm, tensor)) tensors += (tensors.empty() ? "" : ", ") + std::string(to_string(tensor));
      }
      if (tensors.empty()) continue;
      structs += (structs.empty() ? "" : ", ") + std::string("{gemm: ") + std::string(to_string(gemm)) +
                 ", tensors: [" + tensors + "]}";
    }
    for (const bool fake : {false, true}) {
      const LoadedFeatures features(section(
          "s", std::string("{") + (fake ? "FakeQuant: {quant_format: FP8E4M3, " : "PerTensorScaling: {") +
                   "enabled: True, gemms_struct: [" + structs + "]}}"));
      check_plans(layer_with(RecipeKind::kDelayed), features.all(), true);
      const DebugServices services;
      const LayerDescription layer = layer_with(RecipeKind::kDelayed);
      for (const TensorKind tensor : {TensorKind::kActivation, TensorKind::kWeight, TensorKind::kGradient}) {
        DebugQuantizer quantizer(layer, tensor, recipe_quantizer(DType::kE4M3), features.all(), services);
        quantizer.begin_iteration(0);
        for (const Direction direction : {Direction::kRowwise, Direction::kColumnwise}) {
          const Gemm gemm = *gemm_of(tensor, direction);
          const auto [a, b] = operands_of(gemm);
          const bool gemm_listed = listed(gemm, a) || listed(gemm, b);
          const Plan expected = listed(gemm, tensor)  ? Plan::kModifyTensor
                                : fake && gemm_listed ? Plan::kHighPrecision
                                                      : Plan::kStandardQuantize;
          ASSERT_EQ(quantizer.plan(direction), expected)
              << structs << ' ' << to_string(tensor) << ' ' << to_string(gemm) << (fake ? " FakeQuant" : "");
        }
      }
    }
  }
}

}  // namespace
}  // namespace amaxscope
