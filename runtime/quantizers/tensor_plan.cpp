#include "runtime/quantizers/tensor_plan.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace amaxscope {

namespace {

bool same_value(const ConfigValue& a, const ConfigValue& b) {
  if (const auto* list = a.as_list()) {
    return b.as_list() != nullptr && std::ranges::equal(*list, *b.as_list(), same_value);
  }
  if (const auto* mapping = a.as_mapping()) {
    return b.as_mapping() != nullptr &&
           std::ranges::equal(*mapping, *b.as_mapping(), [](const auto& x, const auto& y) {
             return x.key == y.key && same_value(x.value, y.value);
           });
  }
  return a.kind_name() == b.kind_name() && a.summary() == b.summary();
}

bool same_params(const FeatureParams& a, const FeatureParams& b) {
  return &a == &b || std::ranges::equal(a.values, b.values, [](const auto& x, const auto& y) {
    return x.first == y.first && same_value(x.second, y.second);
  });
}

/// The keys that hold for a (GEMM, tensor), whichever of the two the feature takes.
const FeatureParams* params_of(const FeatureConfig& config, Gemm gemm, TensorKind tensor) {
  for (const FeatureParams* found :
       {config.params(gemm, tensor), config.params(gemm, std::nullopt), config.params(std::nullopt, tensor),
        config.params(std::nullopt, std::nullopt)}) {
    if (found != nullptr) return found;
  }
  return &config.outer;
}

DirectionPlan plan_direction(const LayerDescription& layer, TensorKind tensor, Gemm gemm, bool has_quantizer,
                             std::span<Feature* const> features, TensorPlan& plan) {
  DirectionPlan result;
  for (Feature* feature : features) {
    const Decision decision = feature->modify_tensor_enabled(layer, gemm, tensor, plan.iteration);
    plan.directions_next = earlier(plan.directions_next, decision.next);
    if (!decision.enabled) continue;
    if (result.modifier != nullptr) {
      throw modify_conflict(layer, gemm, tensor, *result.modifier, *feature, plan.iteration);
    }
    result.modifier = feature;
  }
  if (result.modifier != nullptr) {
    result.plan = Plan::kModifyTensor;
    result.params = params_of(result.modifier->config(), gemm, tensor);
    return result;
  }
  if (!has_quantizer) return result;
  for (Feature* feature : features) {
    const Decision decision = feature->fp8_gemm_enabled(layer, gemm, plan.iteration);
    plan.directions_next = earlier(plan.directions_next, decision.next);
    if (!decision.enabled) result.disabling.push_back(feature);
  }
  result.plan = result.disabling.empty() ? Plan::kStandardQuantize : Plan::kHighPrecision;
  return result;
}

}  // namespace

std::string_view to_string(Plan plan) noexcept {
  switch (plan) {
    case Plan::kStandardQuantize:
      return "Quantize";
    case Plan::kHighPrecision:
      return "High Precision";
    case Plan::kModifyTensor:
      return "modify_tensor()";
  }
  return "unknown";
}

bool modified_alike(const DirectionPlan& a, const DirectionPlan& b) {
  return a.modifier != nullptr && a.modifier == b.modifier && same_params(*a.params, *b.params) &&
         a.modifier->directions_alike(*a.params);
}

TensorPlan plan_tensor(const InspectedTensor& tensor, bool has_quantizer, std::span<Feature* const> features,
                       std::int64_t iteration) {
  AMAXSCOPE_CHECK(tensor.description != nullptr && tensor.kind, ErrorCode::kUsage,
                  "{} {} belongs to no GEMM layer; it has no plan", tensor.layer, tensor.name);
  TensorPlan plan;
  plan.iteration = iteration;
  for (const Direction direction : {Direction::kRowwise, Direction::kColumnwise}) {
    const std::optional<Gemm> gemm = gemm_of(*tensor.kind, direction);
    if (!gemm) continue;
    DirectionPlan& decided = plan.directions[static_cast<std::size_t>(direction)];
    decided = plan_direction(*tensor.description, *tensor.kind, *gemm, has_quantizer, features, plan);
    const Plan plain = has_quantizer ? Plan::kStandardQuantize : Plan::kHighPrecision;
    plan.differs = plan.differs || decided.plan != plain;
  }
  plan.next = plan.directions_next;
  for (Feature* feature : features) {
    const Decision decision = feature->inspect_tensor_enabled(tensor, iteration);
    plan.next = earlier(plan.next, decision.next);
    if (!decision.enabled) continue;
    plan.inspecting.push_back(feature);
    plan.needs_gemm_inputs = plan.needs_gemm_inputs || feature->needs_gemm_inputs();
  }
  plan.differs = plan.differs || !plan.inspecting.empty();
  return plan;
}

TensorPlan plan_capture(const InspectedTensor& tensor, bool has_quantizer, std::span<Feature* const> features,
                        std::int64_t iteration) {
  TensorPlan plan = plan_tensor(tensor, has_quantizer, features, iteration);
  plan.inspecting.clear();
  plan.needs_gemm_inputs = false;
  for (Feature* feature : features) {
    const Decision decision = feature->inspect_tensor_enabled(tensor, iteration);
    if (decision.enabled || decision.next) plan.inspecting.push_back(feature);
  }
  plan.differs = plan.differs || !plan.inspecting.empty();
  return plan;
}

Error modify_conflict(const LayerDescription& layer, Gemm gemm, TensorKind tensor, const Feature& first,
                      const Feature& second, std::int64_t iteration) {
  return {
      ErrorCode::kConfig,
      fmt::format(
          "layer {}: {} and {} both modify {} in {} at iteration {}; one feature may modify a tensor of a "
          "GEMM at a time",
          layer.name, first.label(), second.label(), to_string(tensor), to_string(gemm), iteration)};
}

}  // namespace amaxscope
