#include "features/recipe_override.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "core/error.hpp"
#include "features/scoped_amax.hpp"
#include "runtime/quantizers/current_scaling.hpp"

namespace amaxscope {

namespace {

constexpr std::string_view kRecipe = "recipe";

RecipeKind recipe_of(const FeatureParams& params) {
  return parse_recipe(params.get_string(kRecipe, "")).value_or(RecipeKind::kNone);
}

bool has_tensor_scale(RecipeKind recipe) { return recipe == RecipeKind::kDelayed || has_tensor_amax(recipe); }

/// Of a tensor that some GEMM selects under delayed scaling: the schedules.
std::vector<Schedule> delayed_schedules(const FeatureConfig& config, TensorKind tensor) {
  std::vector<Schedule> schedules;
  for (const auto& [key, params] : config.selected) {
    if (key.second == tensor && recipe_of(params) == RecipeKind::kDelayed) {
      schedules.push_back(params.schedule);
    }
  }
  return schedules;
}

/// The one that has something due the longest.
const Schedule& longest(const std::vector<Schedule>& schedules) {
  return *std::ranges::max_element(schedules, [](const Schedule& a, const Schedule& b) {
    const auto& end_a = a.intervals().back().end;
    const auto& end_b = b.intervals().back().end;
    return end_a && (!end_b || *end_a < *end_b);
  });
}

void warn_of_mixture(const FeatureConfig& config, const LayerDescription& layer, Gemm gemm,
                     const LayerTerms& terms) {
  const auto recipe_in_gemm = [&](TensorKind tensor) {
    const FeatureParams* params = config.params(gemm, tensor);
    return params == nullptr ? layer.recipe : recipe_of(*params);
  };
  const auto operands = operands_of(gemm);
  const bool selected =
      config.params(gemm, operands[0]) != nullptr || config.params(gemm, operands[1]) != nullptr;
  const RecipeKind a = recipe_in_gemm(operands[0]);
  const RecipeKind b = recipe_in_gemm(operands[1]);
  if (!selected || a == b || !terms.warn) return;
  terms.warn(fmt::format(
      "layer {}: RecipeOverride of section {} makes {} multiply {} under {} with {} under {}; a GEMM has one "
      "recipe for both operands unless that is what you want to see",
      layer.name, config.section, to_string(gemm), to_string(operands[0]), to_string(a),
      to_string(operands[1]), to_string(b)));
}

}  // namespace

void RecipeOverride::admit_layer(const LayerDescription& layer, const LayerTerms& terms) const {
  for (const auto& [key, params] : config().selected) {
    const TensorKind tensor = key.second.value();
    AMAXSCOPE_CHECK(!is_result(tensor), ErrorCode::kConfig,
                    "layer {}: {} quantizes activation, weight and gradient; {} is the result of a GEMM and "
                    "not quantized",
                    layer.name, label(), to_string(tensor));
    AMAXSCOPE_CHECK(
        !has_tensor_scale(recipe_of(params)) || !codes_are_gathered(layer, tensor) ||
            amax_scope_of(params, terms.amax_scope) != AmaxScope::kLocal,
        ErrorCode::kConfig,
        "layer {}: {} with amax_scope local would give each rank a scale of its own for {}, whose codes are "
        "gathered under one scale over {} ranks; use amax_scope tensor or te, or leave this tensor out",
        layer.name, label(), to_string(tensor), layer.tp_group->size());
  }
  for (const Gemm gemm : kAllGemms) warn_of_mixture(config(), layer, gemm, terms);
}

void RecipeOverride::register_tensor(const InspectedTensor& tensor, Registration& registration) {
  if (!tensor.kind || is_result(*tensor.kind)) return;
  const std::vector<Schedule> schedules = delayed_schedules(config(), *tensor.kind);
  if (schedules.empty()) return;
  DelayedHistory history(operand_format(RecipeKind::kDelayed, *tensor.kind),
                         fmt::format("{}.{}", tensor.layer, tensor.name));
  history.declare(tensor, longest(schedules), label(), registration);
  histories_.insert_or_assign(Key{tensor.layer, *tensor.kind}, std::move(history))
      .first->second.keep_in(kept_);
}

Decision RecipeOverride::modify_tensor_enabled(const LayerDescription&, Gemm gemm, TensorKind tensor,
                                               std::int64_t iteration) const {
  const FeatureParams* params = config().params(gemm, tensor);
  return params == nullptr ? Decision::never() : Decision::of(params->schedule, iteration);
}

Decision RecipeOverride::inspect_tensor_enabled(const InspectedTensor& tensor, std::int64_t iteration) const {
  if (!tensor.kind || is_result(*tensor.kind)) return Decision::never();
  const std::vector<Schedule> schedules = delayed_schedules(config(), *tensor.kind);
  return schedules.empty() ? Decision::never() : DelayedHistory::looks(longest(schedules), iteration);
}

void RecipeOverride::inspect_tensor(const InspectContext& context) {
  if (!context.tensor.kind) return;
  const auto history = histories_.find({context.tensor.layer, *context.tensor.kind});
  if (history != histories_.end()) history->second.observe(context);
}

DelayedHistory& RecipeOverride::history_for(const ModifyContext& context) {
  const auto history = histories_.find({context.layer.name, context.tensor});
  AMAXSCOPE_CHECK(history != histories_.end(), ErrorCode::kUsage,
                  "layer {}: {} of {} is not registered, so it has no amax history", context.layer.name,
                  label(), to_string(context.tensor));
  return history->second;
}

bool RecipeOverride::takes_amax_over_tp(const InspectedTensor& weight, std::int64_t iteration,
                                        AmaxScope session_default) const {
  return lists_amax_over_tp(config(), weight, iteration, session_default,
                            [](const FeatureParams& params) { return has_tensor_amax(recipe_of(params)); });
}

std::shared_ptr<QuantizedTensor> RecipeOverride::modify_tensor(const ModifyContext& context) {
  const RecipeKind recipe = recipe_of(context.params);
  const DType format = operand_format(recipe, context.tensor);
  if (recipe == RecipeKind::kDelayed) {
    return quantize_float8(context.x, format, history_for(context).slot().scale, context.usage);
  }
  return quantizers_.quantize(context, recipe, format, context.x, context.usage);
}

FeatureEntry recipe_override_entry() {
  return {.schema = {.name = "RecipeOverride",
                     .doc = "Quantizes the listed tensors of the listed GEMMs with another recipe than the "
                            "running one, or where none runs. List both operands of a GEMM.",
                     .takes_gemms = true,
                     .takes_tensors = true,
                     .keys = {{.name = std::string(kRecipe),
                               .type = KeyType::kString,
                               .required = true,
                               .default_text = "",
                               .doc = "The recipe to quantize with, with its defaults for each tensor.",
                               .allowed = {"delayed", "current", "mxfp8", "block", "nvfp4"}},
                              amax_scope_key()},
                     .addition = true},
          .make = [](FeatureConfig config) { return std::make_unique<RecipeOverride>(std::move(config)); }};
}

}  // namespace amaxscope
