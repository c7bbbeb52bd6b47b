// What a feature gets for each (GEMM, tensor): outer keys, overlaid by the GEMM's entry, overlaid by the
// tensor's.
#include <gmock/gmock.h>

#include "tests/runtime/config/test_registry.hpp"

namespace amaxscope::test {
namespace {

using testing::ElementsAre;

FeatureConfig only_feature(std::string_view features) {
  Config config = load(in_section(features));
  EXPECT_EQ(config.sections.size(), 1U);
  EXPECT_EQ(config.sections.at(0).features.size(), 1U);
  return config.sections.at(0).features.at(0);
}

std::vector<std::string> selected_keys(const FeatureConfig& feature) {
  std::vector<std::string> keys;
  for (const auto& [key, params] : feature.selected) {
    std::string text = key.first ? std::string(to_string(*key.first)) : "-";
    text += key.second ? "/" + std::string(to_string(*key.second)) : "/-";
    keys.push_back(text);
  }
  return keys;
}

TEST(FeatureResolution, ProductOfTwoLists) {
  const FeatureConfig feature = only_feature(R"(
    PerTensorScaling:
      enabled: True
      gemms: [dgrad]
      tensors: [gradient, weight]
)");
  EXPECT_EQ(feature.name, "PerTensorScaling");
  EXPECT_EQ(feature.section, "s");
  EXPECT_EQ(feature.position, (SourcePosition{6, 5}));
  EXPECT_FALSE(feature.base_namespace);
  EXPECT_THAT(selected_keys(feature), ElementsAre("dgrad/weight", "dgrad/gradient"));
  EXPECT_EQ(feature.params(Gemm::kWgrad, TensorKind::kGradient), nullptr);
  EXPECT_EQ(feature.params(std::nullopt, TensorKind::kGradient), nullptr);
  EXPECT_TRUE(feature.params(Gemm::kDgrad, TensorKind::kGradient)->values.empty());
}

TEST(FeatureResolution, BareNamesAreListsOfOne) {
  const FeatureConfig feature = only_feature(R"(
    PerTensorScaling: {enabled: True, gemms: fprop, tensors: activation}
)");
  EXPECT_THAT(selected_keys(feature), ElementsAre("fprop/activation"));
}

TEST(FeatureResolution, FeaturesTakeGemmsTensorsOrNothing) {
  EXPECT_THAT(
      selected_keys(only_feature("    DisableQuantizationGEMM: {enabled: on, gemms: [wgrad, fprop]}\n")),
      ElementsAre("fprop/-", "wgrad/-"));
  EXPECT_THAT(selected_keys(only_feature("    DisableQuantizationLayer: {enabled: yes}\n")),
              ElementsAre("-/-"));
  const FeatureConfig log =
      only_feature("    LogTensorStats: {enabled: TRUE, tensors: [weight, dgrad], stats: [mean, max]}\n");
  EXPECT_THAT(selected_keys(log), ElementsAre("-/weight", "-/dgrad"));
  EXPECT_THAT(log.params(std::nullopt, TensorKind::kWeight)->get_strings("stats"),
              ElementsAre("mean", "max"));
}

TEST(FeatureResolution, TensorsStructOverlaysOuterKeys) {
  const FeatureConfig feature = only_feature(R"(
    FakeQuant:
      enabled: True
      gemms: [fprop]
      quant_format: FP8E5M2
      tensors_struct:
        - tensor: activation
          quant_format: FP8E4M3
        - tensor: weight
)");
  EXPECT_EQ(feature.params(Gemm::kFprop, TensorKind::kActivation)->get_string("quant_format", ""), "FP8E4M3");
  EXPECT_EQ(feature.params(Gemm::kFprop, TensorKind::kWeight)->get_string("quant_format", ""), "FP8E5M2");
  EXPECT_EQ(feature.outer.get_string("quant_format", ""), "FP8E5M2");
}

TEST(FeatureResolution, ThreeLevelsOverlay) {
  const FeatureConfig feature = only_feature(R"(
    PerTensorScaling:
      enabled: True
      margin: 1
      amax_scope: te
      freq: 5
      gemms_struct:
        - gemm: fprop
          margin: 2
          freq: 7
          tensors_struct:
            - tensor: activation
              margin: 3
              skip_unsupported: True
            - tensor: weight
        - gemm: wgrad
          tensors: [gradient]
)");
  EXPECT_THAT(selected_keys(feature), ElementsAre("fprop/activation", "fprop/weight", "wgrad/gradient"));
  const FeatureParams& activation = *feature.params(Gemm::kFprop, TensorKind::kActivation);
  EXPECT_EQ(activation.get_number("margin", 0), 3);
  EXPECT_EQ(activation.get_string("amax_scope", ""), "te");
  EXPECT_TRUE(activation.get_bool("skip_unsupported", false));
  EXPECT_EQ(activation.schedule.text(), "freq=7 [0,)");
  EXPECT_EQ(activation.find("freq"), nullptr);  // schedule keys are no values
  const FeatureParams& weight = *feature.params(Gemm::kFprop, TensorKind::kWeight);
  EXPECT_EQ(weight.get_number("margin", 0), 2);
  EXPECT_FALSE(weight.get_bool("skip_unsupported", false));
  const FeatureParams& gradient = *feature.params(Gemm::kWgrad, TensorKind::kGradient);
  EXPECT_EQ(gradient.get_number("margin", 0), 1);
  EXPECT_EQ(gradient.schedule.text(), "freq=5 [0,)");
  EXPECT_EQ(feature.outer.get_number("margin", 0), 1);
}

TEST(FeatureResolution, AGemmEntryWithoutTensorsUsesTheOuterList) {
  const FeatureConfig feature = only_feature(R"(
    PerTensorScaling:
      enabled: True
      tensors: [gradient]
      gemms_struct:
        - gemm: dgrad
          margin: 2
        - gemm: wgrad
          tensors: [activation]
)");
  EXPECT_THAT(selected_keys(feature), ElementsAre("dgrad/gradient", "wgrad/activation"));
  EXPECT_EQ(feature.params(Gemm::kDgrad, TensorKind::kGradient)->get_number("margin", 0), 2);
}

TEST(FeatureResolution, ResultsGoWithTheirGemm) {
  const FeatureConfig feature = only_feature(R"(
    FakeQuant:
      enabled: True
      quant_format: FP8E4M3
      gemms: [fprop, dgrad, wgrad]
      tensors: [output, dgrad, wgrad]
)");
  EXPECT_THAT(selected_keys(feature), ElementsAre("fprop/output", "dgrad/dgrad", "wgrad/wgrad"));
}

TEST(FeatureResolution, SchedulesPerTensor) {
  const FeatureConfig feature = only_feature(R"(
    LogTensorStats:
      enabled: True
      tensors_struct:
        - {tensor: activation, stats: [mean], freq: 10, start_step: 5, end_step: 100}
        - {tensor: gradient, stats: [max], freq: 2, start_end_list: [[80, 100], [0, 20]]}
        - {tensor: weight, stats: [min], end_step: -1}
        - {tensor: output, stats: [min], start_end_list: [[3, -1]]}
        - {tensor: wgrad, stats: [min], start_step: ~, end_step: ~, start_end_list: ~}
)");
  const auto text = [&](TensorKind tensor) { return feature.params(std::nullopt, tensor)->schedule.text(); };
  EXPECT_EQ(text(TensorKind::kActivation), "freq=10 [5,100]");
  EXPECT_EQ(text(TensorKind::kGradient), "freq=2 [0,20] [80,100]");
  EXPECT_EQ(text(TensorKind::kWeight), "freq=1 [0,)");
  EXPECT_EQ(text(TensorKind::kOutput), "freq=1 [3,)");
  EXPECT_EQ(text(TensorKind::kWgrad), "freq=1 [0,)");  // null is Python's None
  EXPECT_EQ(feature.outer.schedule.text(), "freq=1 [0,)");
}

TEST(FeatureResolution, StatisticsWithAndWithoutParameters) {
  const FeatureConfig feature = only_feature(R"(
    LogTensorStats:
      enabled: True
      tensors: [weight]
      stats:
        - mean
        - max_blockwise_dynamic_range
        - max_blockwise_dynamic_range: {block_size: 16, dims: 2}
        - max_blockwise_dynamic_range:
            block_size: 4
        - mean
)");
  const auto requests = stat_requests(*feature.params(std::nullopt, TensorKind::kWeight));
  ASSERT_EQ(requests.size(), 4U);
  EXPECT_EQ(requests[0].name, "mean");
  EXPECT_EQ(requests[0].position, (SourcePosition{10, 11}));
  EXPECT_TRUE(requests[1].parameters.empty());
  EXPECT_EQ(requests[2].name, "max_blockwise_dynamic_range");
  EXPECT_EQ(requests[2].parameters.find("block_size")->second, 16);
  EXPECT_EQ(requests[2].parameters.find("dims")->second, 2);
  EXPECT_EQ(requests[3].parameters.size(), 1U);
  EXPECT_TRUE(stat_requests(*feature.params(std::nullopt, TensorKind::kWeight), "other").empty());
}

TEST(FeatureResolution, StatisticsBeyondTheSchemasList) {
  const FeatureConfig feature = only_feature(
      "    LogFp8TensorStats: {enabled: True, tensors: [gradient], stats: ['underflows%', mxfp8_mse]}\n");
  const auto requests = stat_requests(*feature.params(std::nullopt, TensorKind::kGradient));
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_EQ(requests[1].name, "mxfp8_mse");
}

TEST(FeatureResolution, BaseNamespaceTakesFreeTensorNames) {
  const Config config = load(R"(
s:
  enabled: True
  layers: {layer_types: [fc1]}
  LogTensorStats:
    enabled: True
    tensors_struct:
      - {tensor: attention scores, stats: [mean], freq: 3}
      - {tensor: activation, stats: [max]}
)");
  const FeatureConfig& feature = config.sections.at(0).features.at(0);
  EXPECT_TRUE(feature.base_namespace);
  EXPECT_TRUE(feature.selected.empty());
  ASSERT_EQ(feature.selected_names.size(), 2U);
  EXPECT_EQ(feature.selected_names.at("attention scores").schedule.text(), "freq=3 [0,)");
  EXPECT_THAT(feature.selected_names.at("activation").get_strings("stats"), ElementsAre("max"));
}

TEST(FeatureResolution, ObservedTensorsSeeTheOuterKeys) {
  const Config config = load(R"(
s:
  enabled: True
  observe: residual|logits
  transformer_engine:
    LogTensorStats: {enabled: True, stats: [mean], freq: 4}
)");
  const ConfigSection& section = config.sections.at(0);
  EXPECT_EQ(section.layers, nullptr);
  EXPECT_TRUE(section.observe->found_in("block.3.residual"));
  EXPECT_THAT(section.features.at(0).outer.get_strings("stats"), ElementsAre("mean"));
  EXPECT_EQ(section.features.at(0).outer.schedule.text(), "freq=4 [0,)");
  EXPECT_TRUE(section.features.at(0).selected.empty());
  EXPECT_TRUE(config.warnings.empty());
}

TEST(FeatureResolution, DeprecatedNamesBecomeTheNewOnes) {
  const Config config = load(in_section(R"(
    DisableFP8GEMM: {enabled: True, gemms: [fprop]}
    DisableFP8Layer: {enabled: True}
)"));
  EXPECT_EQ(config.sections.at(0).features.at(0).name, "DisableQuantizationGEMM");
  EXPECT_EQ(config.sections.at(0).features.at(1).name, "DisableQuantizationLayer");
  EXPECT_THAT(
      config.warnings,
      ElementsAre("t.yaml:6:5: DisableFP8GEMM is a deprecated name; write DisableQuantizationGEMM",
                  "t.yaml:7:5: DisableFP8Layer is a deprecated name; write DisableQuantizationLayer"));
}

TEST(FeatureResolution, GettersRefuseAnotherType) {
  const FeatureConfig feature =
      only_feature("    PerTensorScaling: {enabled: True, gemms: [fprop], tensors: [weight], margin: 1.5}\n");
  const FeatureParams& params = *feature.params(Gemm::kFprop, TensorKind::kWeight);
  EXPECT_EQ(params.get_number("margin", 0), 1.5);
  EXPECT_THROW((void)params.get_integer("margin", 0), Error);
  EXPECT_THROW((void)params.get_string("margin", ""), Error);
  EXPECT_EQ(params.get_integer("absent", 9), 9);
  EXPECT_EQ(params.get_string("absent", "x"), "x");
  EXPECT_TRUE(params.get_strings("absent").empty());
}

TEST(FeatureResolution, StringLists) {
  const FeatureConfig feature =
      only_feature("    Probe: {enabled: True, tensors: [weight], checks: [I2, I1], sample: 3}\n");
  EXPECT_THAT(feature.outer.get_strings("checks"), ElementsAre("I2", "I1"));
  EXPECT_EQ(feature.outer.get_integer("sample", 1), 3);
  EXPECT_THAT(
      only_feature("    Probe: {enabled: True, tensors: [weight], checks: I3}\n").outer.get_strings("checks"),
      ElementsAre("I3"));
}

TEST(FeatureResolution, FileOrderIsKept) {
  const Config config = load(R"(
b: {enabled: True, layers: {layer_types: [x]}, transformer_engine: {Probe: {enabled: True, tensors: [weight]}, DisableQuantizationLayer: {enabled: True}}}
a: {enabled: True, layers: {layer_types: [x]}, transformer_engine: {LogTensorStats: {enabled: False, tensors: [weight], stats: [min]}, Probe: {enabled: True, tensors: [output]}}}
)");
  EXPECT_EQ(config.sections.at(0).name, "b");
  EXPECT_EQ(config.sections.at(0).features.at(0).name, "Probe");
  EXPECT_EQ(config.sections.at(0).features.at(1).name, "DisableQuantizationLayer");
  ASSERT_EQ(config.sections.at(1).features.size(), 1U);  // the disabled feature does not act
  EXPECT_EQ(config.sections.at(1).features.at(0).name, "Probe");
  EXPECT_TRUE(config.warnings.empty());
}

TEST(FeatureResolution, MergeKeysShareFeatures) {
  const Config config = load(R"(
common: &common
  enabled: True
  layers: {layer_types: [fc1]}
  transformer_engine:
    LogTensorStats: &stats {enabled: True, tensors: [weight], stats: [min], freq: 2}
other:
  <<: *common
  layers: {layer_types: [fc2]}
  transformer_engine:
    LogTensorStats: {<<: *stats, freq: 9}
)");
  EXPECT_TRUE(config.sections.at(1).layers->matches("fc2", std::nullopt));
  EXPECT_FALSE(config.sections.at(1).layers->matches("fc1", std::nullopt));
  EXPECT_EQ(config.sections.at(1).features.at(0).params(std::nullopt, TensorKind::kWeight)->schedule.freq(),
            9);
}

}  // namespace
}  // namespace amaxscope::test
