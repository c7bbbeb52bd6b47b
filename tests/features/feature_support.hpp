// Features as a YAML makes them, and layers to use them on.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "features/builtin.hpp"
#include "runtime/config/config.hpp"
#include "runtime/quantizers/current_scaling.hpp"

namespace amaxscope::testing_support {

/// All features of all sections, in the order of the file.
class LoadedFeatures {
 public:
  explicit LoadedFeatures(const std::string& yaml) : registry_(builtin_features()) {
    const Config config = load_config(yaml, "test.yaml", registry_);
    for (const ConfigSection& section : config.sections) {
      for (const FeatureConfig& feature : section.features) {
        owned_.push_back(registry_.find(feature.name, feature.base_namespace)->make(feature));
        pointers_.push_back(owned_.back().get());
      }
    }
  }
  [[nodiscard]] const std::vector<Feature*>& all() const { return pointers_; }
  [[nodiscard]] Feature& front() const { return *pointers_.front(); }

 private:
  FeatureRegistry registry_;
  std::vector<std::unique_ptr<Feature>> owned_;
  std::vector<Feature*> pointers_;
};

/// One section over all layers; `features` is YAML in flow style, "{FakeQuant: {enabled: True, ...}}".
inline std::string section(const std::string& name, const std::string& features) {
  return name + ":\n  enabled: True\n  layers: {layer_types: [all]}\n  transformer_engine: " + features +
         "\n";
}

inline LayerDescription layer_with(RecipeKind recipe, std::string name = "decoder.fc1") {
  LayerDescription layer;
  layer.name = std::move(name);
  layer.recipe = recipe;
  return layer;
}

/// A recipe's quantizer as far as features look at it: the format.
inline std::shared_ptr<Quantizer> recipe_quantizer(DType format) {
  return std::make_shared<Float8CurrentScalingQuantizer>(format, CurrentScalingOptions{}, nullptr);
}

}  // namespace amaxscope::testing_support
