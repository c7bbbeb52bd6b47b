#include "launch/check_plan.hpp"

#include <gmock/gmock.h>

#include "core/error.hpp"
#include "features/builtin.hpp"

namespace amaxscope::launch {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

const std::vector<std::string> kLayers = {
    "decoder.layers.1.mlp.linear_fc1", "decoder.layers.1.mlp.linear_fc2", "decoder.layers.10.mlp.linear_fc1"};

EffectivePlan plan_of(const std::string& yaml, PlanRequest request = {.layers = kLayers}) {
  const FeatureRegistry registry = builtin_features();
  return effective_plan(load_config(yaml, "test.yaml", registry), registry, request);
}

std::string complaint_of(const std::string& yaml, PlanRequest request = {.layers = kLayers}) {
  try {
    plan_of(yaml, std::move(request));
  } catch (const Error& error) {
    EXPECT_TRUE(error.is_bad_input());
    return error.what();
  }
  return {};
}

const PlanRow& row(const EffectivePlan& plan, const std::string& layer, const std::string& tensor,
                   const std::string& gemm, std::int64_t iteration = 0) {
  for (const PlanRow& each : plan.rows) {
    if (each.layer == layer && each.tensor == tensor && each.gemm == gemm && each.iteration == iteration)
      return each;
  }
  throw std::runtime_error("no row " + layer + " " + tensor + " " + gemm);
}

constexpr const char* kDisableFprop = R"(
high:
  enabled: True
  layers: {layer_types: [linear_fc1]}
  transformer_engine:
    DisableQuantizationGEMM: {enabled: True, gemms: [fprop]}
)";

TEST(CheckPlan, NineRowsForEachLayerAndIteration) {
  EXPECT_EQ(plan_of(kDisableFprop).rows.size(), 3U * 9U);
  EXPECT_EQ(
      plan_of(kDisableFprop, {.layers = kLayers, .first_iteration = 3, .last_iteration = 7}).rows.size(),
      3U * 9U * 5U);
}

TEST(CheckPlan, DisabledGemmIsInHighPrecisionOnly) {
  const EffectivePlan plan = plan_of(kDisableFprop);
  const PlanRow& fprop = row(plan, kLayers[0], "activation", "fprop");
  EXPECT_EQ(fprop.plan, "High Precision");
  EXPECT_THAT(fprop.features, ElementsAre("DisableQuantizationGEMM"));
  EXPECT_FALSE(fprop.inspect);
  const PlanRow& wgrad = row(plan, kLayers[0], "activation", "wgrad");
  EXPECT_EQ(wgrad.plan, "Quantize");
  EXPECT_THAT(wgrad.features, IsEmpty());
  EXPECT_EQ(row(plan, kLayers[1], "activation", "fprop").plan, "Quantize");
  EXPECT_EQ(row(plan, kLayers[0], "output", "fprop").plan, "High Precision");
}

TEST(CheckPlan, SectionsListTheirLayersInTheOrderGiven) {
  EXPECT_THAT(plan_of(kDisableFprop).section_layers,
              UnorderedElementsAre(std::pair("high", std::vector{kLayers[0], kLayers[2]})));
}

TEST(CheckPlan, SaysWhatAPatternTakesByAPartOfANumber) {
  const auto warnings_of = [](const std::string& pattern) {
    return plan_of("one:\n  enabled: True\n  layers: {layer_name_regex_pattern: '" + pattern +
                   "'}\n  transformer_engine:\n    DisableQuantizationLayer: {enabled: True}\n")
        .warnings;
  };
  EXPECT_THAT(warnings_of(R"(layers\.1)"),
              ElementsAre(AllOf(HasSubstr("test.yaml:1:1: section one"), HasSubstr(kLayers[2]),
                                HasSubstr(R"('layers\.1\..*')"))));
  EXPECT_THAT(warnings_of(R"(layers\.1\.)"), IsEmpty());
}

TEST(CheckPlan, WithoutARecipeNothingIsQuantized) {
  const EffectivePlan plan = plan_of(kDisableFprop, {.layers = kLayers, .recipe = RecipeKind::kNone});
  for (const PlanRow& each : plan.rows)
    EXPECT_EQ(each.plan, "High Precision") << each.tensor << " " << each.gemm;
}

TEST(CheckPlan, ModifyingFeatureAndItsSchedule) {
  const EffectivePlan plan = plan_of(R"(
scaled:
  enabled: True
  layers: {exact_layer_names: [decoder.layers.1.mlp.linear_fc2]}
  transformer_engine:
    PerTensorScaling: {enabled: True, gemms: [dgrad], tensors: [gradient], start_step: 2, end_step: 3}
)",
                                     {.layers = kLayers, .first_iteration = 1, .last_iteration = 4});
  const auto plan_at = [&](std::int64_t iteration) {
    return row(plan, kLayers[1], "gradient", "dgrad", iteration).plan;
  };
  EXPECT_EQ(plan_at(1), "Quantize");
  EXPECT_EQ(plan_at(2), "modify_tensor()");
  EXPECT_EQ(plan_at(3), "modify_tensor()");
  EXPECT_EQ(plan_at(4), "Quantize");
  EXPECT_EQ(row(plan, kLayers[1], "gradient", "wgrad", 2).plan, "Quantize");
  EXPECT_FALSE(plan.next_change);
}

TEST(CheckPlan, InspectionFollowsTheSchedule) {
  const EffectivePlan plan = plan_of(R"(
stats:
  enabled: True
  layers: {layer_types: [all]}
  transformer_engine:
    LogTensorStats: {enabled: True, tensors: [weight], stats: [mean], start_step: 5, freq: 10}
)",
                                     {.layers = {kLayers[0]}, .first_iteration = 0, .last_iteration = 25});
  std::vector<std::int64_t> inspected;
  for (const PlanRow& each : plan.rows) {
    if (each.tensor == "weight" && each.gemm == "fprop" && each.inspect) inspected.push_back(each.iteration);
    if (each.tensor != "weight") {
      EXPECT_FALSE(each.inspect) << each.tensor;
    }
  }
  EXPECT_THAT(inspected, ElementsAre(10, 20));
  EXPECT_EQ(plan.next_change, 30);
}

TEST(CheckPlan, SectionWithoutALayerNamesTheNearest) {
  EXPECT_THAT(complaint_of(R"(
typo:
  enabled: True
  layers: {exact_layer_names: [decoder.layers.1.mlp.linear_fc3]}
  transformer_engine:
    DisableQuantizationLayer: {enabled: True}
)"),
              AllOf(HasSubstr("test.yaml:2:"), HasSubstr("section typo matches none of the 3 given layers"),
                    HasSubstr("decoder.layers.1.mlp.linear_fc1")));
}

TEST(CheckPlan, DisabledSectionNeedsNoLayer) {
  EXPECT_EQ(complaint_of(R"(
off:
  enabled: False
  layers: {exact_layer_names: [nosuch]}
  transformer_engine:
    DisableQuantizationLayer: {enabled: True}
)"),
            "");
}

TEST(CheckPlan, TwoModifyingFeaturesAreNamed) {
  EXPECT_THAT(complaint_of(R"(
first:
  enabled: True
  layers: {layer_types: [fc1]}
  transformer_engine:
    FakeQuant: {enabled: True, quant_format: FP8E4M3, gemms: [fprop], tensors: [activation, weight]}
second:
  enabled: True
  layers: {layer_numbers: [10]}
  transformer_engine:
    FakeQuant: {enabled: True, quant_format: FP8E5M2, gemms: [fprop], tensors: [activation, weight]}
)"),
              AllOf(HasSubstr("first"), HasSubstr("second"), HasSubstr("decoder.layers.10.mlp.linear_fc1")));
}

TEST(CheckPlan, PatternTakesTenForOneUnlessItIsClosed) {
  constexpr const char* kForm = R"(
s:
  enabled: True
  layers: {{layer_name_regex_pattern: 'layers\.1{}'}}
  transformer_engine:
    DisableQuantizationLayer: {{enabled: True}}
)";
  EXPECT_EQ(plan_of(fmt::format(kForm, "")).section_layers.at("s").size(), 3U);
  EXPECT_EQ(plan_of(fmt::format(kForm, "\\.")).section_layers.at("s").size(), 2U);
}

TEST(CheckPlan, TooManyRowsAreRefusedBeforeTheyAreMade) {
  EXPECT_THAT(complaint_of(kDisableFprop, {.layers = kLayers, .last_iteration = 1'000'000'000'000}),
              HasSubstr("give fewer layers or iterations"));
}

TEST(CheckPlan, EveryRecipeQuantizesWhatNoFeatureKeeps) {
  for (const RecipeKind recipe : {RecipeKind::kMxfp8, RecipeKind::kBlock, RecipeKind::kNvfp4}) {
    PlanRequest request{.layers = kLayers};
    request.recipe = recipe;
    int quantized = 0;
    for (const PlanRow& row : plan_of(kDisableFprop, request).rows) {
      quantized += row.plan == "Quantize" ? 1 : 0;
    }
    EXPECT_GT(quantized, 0) << to_string(recipe);
  }
}

}  // namespace
}  // namespace amaxscope::launch
