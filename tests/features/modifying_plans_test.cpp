// How the features that change numerics plan together.
#include <gmock/gmock.h>

#include <map>

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

// cases.md case 16: one meaning of the schedule keys, whatever the feature.
TEST(AllFeatures, FollowTheSameSchedule) {
  const std::map<std::string, std::string> keys = {
      {"DisableQuantizationGEMM", "gemms: [fprop]"},
      {"DisableQuantizationLayer", ""},
      {"PerTensorScaling", "gemms: [fprop], tensors: [activation]"},
      {"FakeQuant", "gemms: [fprop], tensors: [activation], quant_format: FP8E4M3"},
      {"RecipeOverride", "gemms: [fprop], tensors: [activation], recipe: current"},
      {"LogTensorStats", "tensors: [activation], stats: [max]"},
      {"LogFp8TensorStats", "tensors: [activation], stats: [mse]"},
      {"LogNvfp4TensorStats", "tensors: [activation], stats: [mse]"},
      {"DumpTensors", "tensors: [activation], high_precision_tensor: True"},
      {"InvariantGuard", "tensors: [activation]"},
      {"NonFiniteGuard", "tensors: [activation]"},
      {"CompareGemm", "gemms: [fprop]"},
      {"Trends", "tensors: [activation]"}};
  struct Case {
    std::string schedule;
    std::vector<std::int64_t> due;
  };
  const std::vector<Case> cases = {{"start_step: 5, freq: 10", {10, 20}},
                                   {"start_step: 5, freq: 10, end_step: -1", {10, 20}},
                                   {"end_step: 2", {0, 1, 2}},
                                   {"start_end_list: [[0, 2], [10, 11]]", {0, 1, 2, 10, 11}}};
  const DebugServices services;
  const FeatureRegistry registry = builtin_features();
  const LayerDescription layer = layer_with(RecipeKind::kDelayed);
  for (const FeatureEntry& entry : registry.entries()) {
    if (entry.base_namespace) continue;
    ASSERT_TRUE(keys.contains(entry.schema.name)) << entry.schema.name << " has no case here";
    for (const Case& one : cases) {
      std::string body = "{" + entry.schema.name + ": {enabled: True, ";
      if (!keys.at(entry.schema.name).empty()) body += keys.at(entry.schema.name) + ", ";
      const LoadedFeatures features(section("s", body + one.schedule + "}}"));
      std::vector<std::unique_ptr<DebugQuantizer>> tensors;
      for (const TensorKind tensor : kAllTensors) {
        tensors.push_back(std::make_unique<DebugQuantizer>(
            layer, tensor, is_result(tensor) ? nullptr : recipe_quantizer(DType::kE4M3), features.all(),
            services));
      }
      std::vector<std::int64_t> due;
      for (std::int64_t iteration = 0; iteration <= 25; ++iteration) {
        bool acts = false;
        for (const auto& tensor : tensors) {
          tensor->begin_iteration(iteration);
          acts = acts || tensor->any_feature_enabled();
        }
        if (acts) due.push_back(iteration);
      }
      EXPECT_EQ(due, one.due) << entry.schema.name << " with " << one.schedule;
    }
  }
}

}  // namespace
}  // namespace amaxscope
