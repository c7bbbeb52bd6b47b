// What a config may say without being wrong, but is told about.
#include <gmock/gmock.h>

#include "tests/runtime/config/test_registry.hpp"

namespace amaxscope::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> warnings_of(const std::string& yaml) { return load(yaml).warnings; }

TEST(ConfigWarnings, AnEmptyConfigHasNothingToDo) {
  for (const char* yaml : {"", "# nothing\n", "---\n"}) {
    const Config config = load(yaml);
    EXPECT_TRUE(config.sections.empty());
    EXPECT_THAT(config.warnings, ElementsAre("t.yaml: the config is empty: there is nothing to do")) << yaml;
  }
  EXPECT_THAT(warnings_of("{}"),
              ElementsAre("t.yaml: no section of the config is enabled: there is nothing to do"));
}

TEST(ConfigWarnings, NoSectionEnabled) {
  const Config config = load(
      "s: {enabled: False, layers: {layer_types: [a]}, transformer_engine: {DisableQuantizationLayer: "
      "{enabled: True}}}");
  ASSERT_EQ(config.sections.size(), 1U);
  EXPECT_FALSE(config.sections[0].enabled);
  EXPECT_THAT(config.warnings,
              ElementsAre("t.yaml: no section of the config is enabled: there is nothing to do"));
}

TEST(ConfigWarnings, WhatIsMissingInADisabledPartIsNoError) {
  // The shapes of a documented example of the reference, which skips both.
  EXPECT_THAT(warnings_of("a:\n"
                          "  enabled: True\n"
                          "  layers: {layer_types: [self_attention]}\n"
                          "  transformer_engine:\n"
                          "    LogTensorStats: {enabled: False, stats: [max, min]}\n"
                          "b:\n"
                          "  enabled: False\n"
                          "  transformer_engine:\n"
                          "    FakeQuant: {enabled: True, gemms: [fprop], tensors: [weight]}\n"),
              ElementsAre("t.yaml:5:5: LogTensorStats needs tensors or tensors_struct",
                          "t.yaml:6:1: section \"b\" has no layers; say which layers it is about"));
}

TEST(ConfigWarnings, ASectionWithoutFeatures) {
  for (const char* rest : {"", "  transformer_engine:\n"}) {
    EXPECT_THAT(warnings_of(std::string("s:\n  enabled: True\n  layers: {layer_types: [a]}\n") + rest),
                ElementsAre("t.yaml:1:1: section \"s\" has no feature: it does nothing"));
  }
}

TEST(ConfigWarnings, PairsThatCannotOccurAreNamedOncePerFeature) {
  EXPECT_THAT(warnings_of(in_section(
                  "    PerTensorScaling: {enabled: True, gemms: [dgrad, wgrad], tensors: [gradient, "
                  "weight, activation]}\n")),
              ElementsAre("t.yaml:5:5: PerTensorScaling: skipped, as they cannot occur: activation in dgrad, "
                          "weight in wgrad"));
  EXPECT_THAT(
      warnings_of(in_section("    PerTensorScaling: {enabled: True, gemms: wgrad, tensors: weight}\n")),
      ElementsAre("t.yaml:5:5: PerTensorScaling: skipped, as they cannot occur: weight in wgrad; nothing is "
                  "left to do"));
}

TEST(ConfigWarnings, StructsReplacePlainLists) {
  const Config config = load(in_section(
      "    Probe: {enabled: True, tensors: [weight], tensors_struct: [{tensor: output}]}\n"
      "    DisableQuantizationGEMM: {enabled: True, gemms_struct: [{gemm: wgrad}], gemms: [fprop]}\n"));
  EXPECT_THAT(config.warnings, ElementsAre("t.yaml:5:28: tensors is ignored: tensors_struct replaces it",
                                           "t.yaml:6:77: gemms is ignored: gemms_struct replaces it"));
  const auto& features = config.sections[0].features;
  EXPECT_EQ(features[0].params(std::nullopt, TensorKind::kWeight), nullptr);
  EXPECT_NE(features[0].params(std::nullopt, TensorKind::kOutput), nullptr);
  EXPECT_EQ(features[1].params(Gemm::kFprop, std::nullopt), nullptr);
  EXPECT_NE(features[1].params(Gemm::kWgrad, std::nullopt), nullptr);
}

TEST(ConfigWarnings, AnOuterTensorListThatNothingUses) {
  EXPECT_THAT(
      warnings_of(
          in_section("    PerTensorScaling: {enabled: True, tensors: [weight], gemms_struct: [{gemm: fprop, "
                     "tensors: [activation]}]}\n")),
      ElementsAre(
          "t.yaml:5:5: the tensor list of PerTensorScaling itself is ignored: every entry of gemms_struct "
          "has its own"));
}

TEST(ConfigWarnings, StartEndListReplacesStartAndEnd) {
  const Config config =
      load(in_section("    Probe: {enabled: True, tensors: [weight, output], start_step: 3, end_step: 9, "
                      "start_end_list: [[0, 1]]}\n"));
  EXPECT_THAT(config.warnings, ElementsAre("t.yaml:5:67: start_step is ignored: start_end_list replaces it",
                                           "t.yaml:5:80: end_step is ignored: start_end_list replaces it"));
  EXPECT_EQ(config.sections[0].features[0].outer.schedule.text(), "freq=1 [0,1]");
}

TEST(ConfigWarnings, RepeatedStatisticsCountOnce) {
  EXPECT_THAT(warnings_of(in_section(
                  "    LogTensorStats: {enabled: True, tensors: [weight], stats: [mean, max, mean]}\n")),
              ElementsAre("t.yaml:5:75: \"mean\" is named twice in stats"));
}

TEST(ConfigWarnings, ObserveBesideLayers) {
  EXPECT_THAT(
      warnings_of("s:\n  enabled: True\n  layers: {layer_types: [a]}\n  observe: b\n  transformer_engine:\n"
                  "    LogTensorStats: {enabled: True, stats: [min]}\n"),
      ElementsAre("t.yaml:6:5: LogTensorStats names no tensors: it acts on observed tensors only, on none of "
                  "the layers"));
  EXPECT_THAT(
      warnings_of("s:\n  enabled: True\n  layers: {layer_types: [a]}\n  observe: b\n  transformer_engine:\n"
                  "    LogTensorStats: {enabled: True, tensors_struct: [{tensor: weight, stats: [min]}]}\n"),
      ElementsAre(
          "t.yaml:6:5: LogTensorStats does not act on observed tensors: stats is not among its outer keys"));
  EXPECT_THAT(
      warnings_of("s:\n  enabled: True\n  layers: {layer_types: [a]}\n  observe: b\n  transformer_engine:\n"
                  "    LogTensorStats: {enabled: True, tensors: [weight], stats: [min]}\n"),
      IsEmpty());
  EXPECT_THAT(
      warnings_of("s:\n  enabled: True\n  observe: b\n  transformer_engine:\n"
                  "    LogTensorStats: {enabled: True, tensors: [weight], stats: [min]}\n"),
      ElementsAre("t.yaml:5:5: the tensor list of LogTensorStats is ignored: observe alone selects here"));
}

TEST(ConfigWarnings, TextAndSourceAreKept) {
  const std::string yaml = in_section("    Probe: {enabled: True, tensors: [weight]}\n");
  const Config config = load(yaml);
  EXPECT_EQ(config.text, yaml);
  EXPECT_EQ(config.source, "t.yaml");
  EXPECT_THAT(config.warnings, IsEmpty());
}

}  // namespace
}  // namespace amaxscope::test
