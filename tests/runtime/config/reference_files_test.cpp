// Files in the shapes that TransformerEngine's debug documentation and tests and nvidia-dlfw-inspect's
// examples use: what each resolves to, to the last key.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "features/builtin.hpp"
#include "runtime/config/config.hpp"

namespace amaxscope {
namespace {

using testing::ElementsAre;

std::string show(const ConfigValue& value) {
  const auto* list = value.as_list();
  const auto* mapping = value.as_mapping();
  if (list == nullptr && mapping == nullptr)
    return value.as_string() != nullptr ? *value.as_string() : value.summary();
  std::string text;
  if (list != nullptr) {
    for (const ConfigValue& entry : *list) text += (text.empty() ? "" : " ") + show(entry);
    return "[" + text + "]";
  }
  for (const auto& member : *mapping)
    text += (text.empty() ? "" : " ") + member.key + "=" + show(member.value);
  return "{" + text + "}";
}

std::string show(const FeatureParams& params) {
  std::string text;
  for (const auto& [key, value] : params.values) text += fmt::format(" {}={}", key, show(value));
  return text + " " + params.schedule.text();
}

/// One line for every (section, feature, GEMM, tensor) that acts.
std::vector<std::string> plan(const Config& config) {
  std::vector<std::string> lines;
  for (const ConfigSection& section : config.sections) {
    if (!section.enabled) continue;
    for (const FeatureConfig& feature : section.features) {
      const std::string head =
          fmt::format("{} {}{}", section.name, feature.base_namespace ? "base." : "", feature.name);
      for (const auto& [key, params] : feature.selected) {
        lines.push_back(fmt::format("{} {}/{}{}", head, key.first ? to_string(*key.first) : "-",
                                    key.second ? to_string(*key.second) : "-", show(params)));
      }
      for (const auto& [name, params] : feature.selected_names) {
        lines.push_back(fmt::format("{} \"{}\"{}", head, name, show(params)));
      }
    }
  }
  return lines;
}

Config load_file(const std::string& name) {
  const std::string path = std::string(AMAXSCOPE_CONFIG_FILES) + "/" + name;
  return load_config(read_config_file(path), name, builtin_features());
}

std::vector<std::string> matching(const Config& config, const std::string& layer,
                                  std::optional<int> number = {}) {
  std::vector<std::string> sections;
  for (const ConfigSection& section : config.sections) {
    if (section.layers != nullptr && section.layers->matches(layer, number)) sections.push_back(section.name);
  }
  return sections;
}

TEST(ReferenceFiles, DisableGemms) {
  const Config config = load_file("disable_gemms.yaml");
  EXPECT_THAT(plan(config), ElementsAre("fprop_of_the_mlp DisableQuantizationGEMM fprop/- freq=1 [0,)",
                                        "no_fp8_in_qkv DisableQuantizationLayer -/- freq=1 [0,)",
                                        "backward_of_proj DisableQuantizationGEMM dgrad/- freq=1 [0,)",
                                        "backward_of_proj DisableQuantizationGEMM wgrad/- freq=1 [0,)"));
  EXPECT_THAT(matching(config, "decoder.1.mlp.fc2"), ElementsAre("fprop_of_the_mlp"));
  EXPECT_THAT(matching(config, "decoder.1.attn.qkv"), ElementsAre("no_fp8_in_qkv"));
  EXPECT_THAT(matching(config, "layer.self_attn.proj"), ElementsAre("backward_of_proj"));
  EXPECT_EQ(config.warnings.size(), 2U);  // the two deprecated names
}

TEST(ReferenceFiles, TensorManipulation) {
  const Config config = load_file("tensor_manipulation.yaml");
  EXPECT_THAT(plan(config),
              ElementsAre("fc1_manipulation DisableQuantizationGEMM wgrad/- freq=1 [0,)",
                          "fc1_manipulation PerTensorScaling dgrad/gradient freq=1 [0,)",
                          "fc1_manipulation FakeQuant fprop/activation quant_format=FP8E4M3 freq=1 [0,)",
                          "fc1_manipulation FakeQuant fprop/weight quant_format=FP8E4M3 freq=1 [0,)",
                          "fc2_manipulation PerTensorScaling fprop/activation freq=1 [0,)",
                          "fc2_manipulation PerTensorScaling fprop/weight freq=1 [0,)",
                          "fc2_manipulation PerTensorScaling wgrad/activation freq=1 [0,)",
                          "fc2_manipulation PerTensorScaling wgrad/gradient freq=1 [0,)",
                          "fc2_manipulation FakeQuant dgrad/weight quant_format=FP8E5M2 freq=1 [0,)",
                          "fc2_manipulation FakeQuant dgrad/gradient quant_format=FP8E5M2 freq=1 [0,)"));
  EXPECT_THAT(matching(config, "decoder.1.mlp.fc1"), ElementsAre("fc1_manipulation"));
  EXPECT_THAT(matching(config, "decoder.1.mlp.fc2"), ElementsAre("fc2_manipulation"));
  EXPECT_EQ(config.warnings.size(), 1U);
}

TEST(ReferenceFiles, FakeQuant) {
  const Config config = load_file("fake_quant.yaml");
  const std::string all = "all_gemms_numbered FakeQuant ";
  const std::string tail = " quant_format=FP8E4M3 freq=1 [0,)";
  EXPECT_THAT(
      plan(config),
      ElementsAre("one_format_for_all FakeQuant fprop/activation quant_format=FP8E5M2 freq=1 [0,)",
                  "one_format_for_all FakeQuant fprop/weight quant_format=FP8E5M2 freq=1 [0,)",
                  "one_format_for_all FakeQuant dgrad/gradient quant_format=FP8E5M2 freq=1 [0,)",
                  all + "fprop/activation" + tail, all + "fprop/weight" + tail, all + "fprop/output" + tail,
                  all + "dgrad/weight" + tail, all + "dgrad/gradient" + tail, all + "dgrad/dgrad" + tail,
                  all + "wgrad/activation" + tail, all + "wgrad/gradient" + tail,
                  all + "wgrad/wgrad" + tail));
  EXPECT_THAT(
      config.warnings,
      ElementsAre(
          "fake_quant.yaml:21:5: FakeQuant: skipped, as they cannot occur: gradient in fprop, wgrad in "
          "fprop, dgrad in fprop, activation in dgrad, output in dgrad, wgrad in dgrad, weight in wgrad, "
          "output in wgrad, dgrad in wgrad"));
  EXPECT_THAT(matching(config, "decoder.1.mlp.fc1"), ElementsAre("all_gemms_numbered"));
  EXPECT_THAT(matching(config, "decoder.2.mlp.fc1"), ElementsAre());
  EXPECT_THAT(matching(config, "transformer_layer.layernorm_mlp.fc1", 1),
              ElementsAre("one_format_for_all", "all_gemms_numbered"));
}

TEST(ReferenceFiles, Statistics) {
  const Config config = load_file("statistics.yaml");
  EXPECT_THAT(
      plan(config),
      ElementsAre(
          "numbered base.LogTensorStats \"activation\" stats=[mean std l1_norm l2_norm] freq=1 [100,500]",
          "numbered LogTensorStats -/activation stats=[cur_amax dynamic_range] freq=2 [100,500]",
          "numbered LogFp8TensorStats -/gradient stats=[underflows% overflows%] freq=5 [100,500]",
          "structs base.LogTensorStats \"activation\" stats=[mean] freq=10 [5,100]",
          "structs base.LogTensorStats \"block output\" stats=[max min] freq=1 [0,)",
          "structs LogTensorStats -/activation stats=[mean] freq=3 [1,)",
          "structs LogTensorStats -/weight stats=[dynamic_range] freq=1 [0,)",
          "structs LogTensorStats -/gradient stats=[mean max min] freq=2 [0,20] [80,100]",
          "everything LogFp8TensorStats -/weight stats=[scale_inv_min scale_inv_max mse] freq=1 [0,)"));
  EXPECT_THAT(config.warnings, ElementsAre());
  EXPECT_THAT(matching(config, "decoder.3.mlp.fc1"), ElementsAre("numbered", "everything"));
  EXPECT_THAT(matching(config, "decoder.7.mlp.fc1"), ElementsAre("structs", "everything"));
  EXPECT_THAT(matching(config, "decoder.8.mlp.fc1"), ElementsAre("everything"));
}

TEST(ReferenceFiles, Blockwise) {
  const Config config = load_file("blockwise.yaml");
  const std::string stats =
      "stats=[dynamic_range {max_blockwise_dynamic_range={block_size=4 dims=1}} "
      "{max_blockwise_dynamic_range={block_size=4 dims=2}}] freq=1 [0,)";
  EXPECT_THAT(plan(config), ElementsAre("ranges LogTensorStats -/activation " + stats,
                                        "ranges LogTensorStats -/weight " + stats,
                                        "ranges LogTensorStats -/gradient " + stats));
  const auto requests =
      stat_requests(*config.sections.at(0).features.at(0).params(std::nullopt, TensorKind::kWeight));
  ASSERT_EQ(requests.size(), 3U);
  EXPECT_EQ(requests[2].parameters.find("dims")->second, 2);
}

TEST(ReferenceFiles, WhatIf) {
  EXPECT_THAT(
      plan(load_file("what_if.yaml")),
      ElementsAre(
          "what_if LogFp8TensorStats -/activation stats=[mxfp8_underflows% mxfp8_mse_columnwise] freq=1 [0,)",
          "what_if LogFp8TensorStats -/gradient stats=[underflows% fp8_current_scaling_mse "
          "fp8_block_scaling_scale_inv_max_columnwise] freq=5 [0,80]"));
}

TEST(ReferenceFiles, OverlappingSectionsMergeInFileOrder) {
  const Config config = load_file("overlapping.yaml");
  EXPECT_THAT(plan(config), ElementsAre("wgrad_everywhere DisableQuantizationGEMM wgrad/- freq=1 [0,)",
                                        "mlp_off DisableQuantizationLayer -/- freq=1 [0,)",
                                        "fc1_statistics LogTensorStats -/wgrad stats=[min] freq=1 [0,50]"));
  EXPECT_THAT(matching(config, "transformer_layer.layernorm_mlp.fc1"),
              ElementsAre("wgrad_everywhere", "mlp_off", "fc1_statistics"));
}

TEST(ReferenceFiles, DisabledPartsLoadAndDoNothing) {
  const Config config = load_file("disabled.yaml");
  EXPECT_THAT(plan(config), ElementsAre());
  EXPECT_THAT(
      config.warnings,
      ElementsAre("disabled.yaml:6:5: LogTensorStats needs tensors or tensors_struct",
                  "disabled.yaml:10:1: section \"section_off\" has no layers; say which layers it is about"));
}

}  // namespace
}  // namespace amaxscope
