// A registry with schemas in the shapes of the real features, so that the config is tested without them.
#pragma once

#include <memory>
#include <string>

#include "core/error.hpp"
#include "runtime/config/config.hpp"
#include "runtime/feature/registry.hpp"

namespace amaxscope::test {

class InertFeature : public Feature {
 public:
  using Feature::Feature;
  [[nodiscard]] bool alters_numerics() const override { return false; }
};

inline std::unique_ptr<Feature> make_inert(FeatureConfig config) {
  return std::make_unique<InertFeature>(std::move(config));
}

inline std::vector<StatSchema> stats_named(const std::vector<std::string>& names) {
  std::vector<StatSchema> stats;
  for (const std::string& name : names) stats.push_back({name, "", {}, false});
  return stats;
}

inline FeatureRegistry test_registry() {
  const KeySchema stats{
      .name = "stats", .type = KeyType::kStatList, .required = true, .default_text = "", .doc = ""};
  FeatureRegistry registry;
  const auto add = [&](FeatureSchema schema, bool base = false) {
    registry.add({std::move(schema), base, make_inert});
  };
  add({.name = "DisableQuantizationGEMM",
       .deprecated_aliases = {"DisableFP8GEMM"},
       .doc = "",
       .takes_gemms = true});
  add({.name = "DisableQuantizationLayer", .deprecated_aliases = {"DisableFP8Layer"}, .doc = ""});
  add({.name = "PerTensorScaling",
       .doc = "",
       .takes_gemms = true,
       .takes_tensors = true,
       .keys = {{.name = "margin", .type = KeyType::kNumber, .default_text = "0", .doc = ""},
                {.name = "amax_scope",
                 .type = KeyType::kString,
                 .default_text = "tensor",
                 .doc = "",
                 .allowed = {"tensor", "te", "local"}},
                {.name = "skip_unsupported", .type = KeyType::kBool, .default_text = "False", .doc = ""}}});
  add({.name = "FakeQuant",
       .doc = "",
       .takes_gemms = true,
       .takes_tensors = true,
       .keys = {{.name = "quant_format",
                 .type = KeyType::kString,
                 .required = true,
                 .default_text = "",
                 .doc = "",
                 .allowed = {"FP8E4M3", "FP8E5M2"}}}});
  FeatureSchema log{.name = "LogTensorStats", .doc = "", .takes_tensors = true, .keys = {stats}};
  log.statistics =
      stats_named({"min", "max", "mean", "std", "l1_norm", "l2_norm", "cur_amax", "dynamic_range"});
  log.statistics.push_back(
      {.name = "max_blockwise_dynamic_range",
       .doc = "",
       .parameters = {
           {.name = "block_size", .type = KeyType::kInteger, .default_text = "32", .doc = "", .minimum = 1},
           {.name = "dims",
            .type = KeyType::kInteger,
            .default_text = "1",
            .doc = "",
            .allowed = {"1", "2"}}}});
  log.statistics.push_back({.name = "histogram",
                            .doc = "",
                            .parameters = {{.name = "bins",
                                            .type = KeyType::kInteger,
                                            .required = true,
                                            .default_text = "",
                                            .doc = "",
                                            .minimum = 1}}});
  add(log);
  FeatureSchema fp8{.name = "LogFp8TensorStats", .doc = "", .takes_tensors = true, .keys = {stats}};
  fp8.statistics = stats_named({"underflows%", "overflows%", "scale_inv_min", "scale_inv_max", "mse"});
  fp8.accepts_statistic = [](std::string_view word, std::string& reason) {
    if (word == "mxfp8_mse" || word == "fp8_current_scaling_underflows%") return true;
    if (word == "fp8_current_scaling_mse_columnwise")
      reason = "per-tensor recipes have no columnwise statistics";
    return false;
  };
  add(fp8);
  add({.name = "Probe",
       .doc = "",
       .takes_tensors = true,
       .keys = {
           {.name = "checks",
            .type = KeyType::kStringList,
            .default_text = "",
            .doc = "",
            .allowed = {"I1", "I2", "I3"}},
           {.name = "sample", .type = KeyType::kInteger, .default_text = "1", .doc = "", .minimum = 1}}});
  FeatureSchema base{
      .name = "LogTensorStats", .doc = "", .takes_tensors = true, .free_tensor_names = true, .keys = {stats}};
  base.statistics = stats_named({"min", "max", "mean", "std", "l1_norm", "l2_norm"});
  add(base, /*base=*/true);
  return registry;
}

inline Config load(std::string_view yaml) { return load_config(yaml, "t.yaml", test_registry()); }

/// What load_config says, or "" when it loads.
inline std::string errors_of(std::string_view yaml) {
  try {
    (void)load(yaml);
  } catch (const Error& error) {
    return error.code() == ErrorCode::kConfig ? error.what() : std::string("wrong code: ") + error.what();
  }
  return "";
}

/// A section around features, for tests that are about a feature: its first line is line 5, column 5.
inline std::string in_section(std::string_view features) {
  return "s:\n  enabled: True\n  layers: {layer_types: [all]}\n  transformer_engine:\n" +
         std::string(features);
}

}  // namespace amaxscope::test
