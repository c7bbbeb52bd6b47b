#include "features/inspecting.hpp"

namespace amaxscope {

const FeatureParams* params_of_inspected(const FeatureConfig& config, const InspectedTensor& tensor) {
  if (config.base_namespace) {
    const auto found = config.selected_names.find(tensor.name);
    return found == config.selected_names.end() ? nullptr : &found->second;
  }
  return tensor.kind ? config.params(std::nullopt, tensor.kind) : &config.outer;
}

KeySchema stats_key() {
  return {.name = "stats",
          .type = KeyType::kStatList,
          .required = true,
          .default_text = "",
          .doc = "The statistics to log."};
}

bool counts(const InspectContext& context, const StatAccumulator& accumulator) {
  if (context.moment.phase == Phase::kRecompute || !context.has_original) return false;
  return context.tensor.kind != TensorKind::kWeight || !accumulator.ran();
}

}  // namespace amaxscope
