#include "features/per_tensor_scaling.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "features/scoped_amax.hpp"
#include "runtime/quantizers/current_scaling.hpp"

namespace amaxscope {

namespace {

constexpr std::string_view kMargin = "margin";
constexpr std::string_view kSkipUnsupported = "skip_unsupported";

bool is_served(const LayerDescription& layer) noexcept { return layer.recipe == RecipeKind::kDelayed; }

}  // namespace

void PerTensorScaling::admit_layer(const LayerDescription& layer, const LayerTerms& terms) const {
  if (!is_served(layer)) {
    const bool skipped = std::ranges::all_of(
        config().selected, [](const auto& entry) { return entry.second.get_bool(kSkipUnsupported, false); });
    AMAXSCOPE_CHECK(
        skipped, ErrorCode::kConfig,
        "layer {}: {} needs the delayed-scaling recipe, the layer has {}; leave the layer out of the "
        "section or set skip_unsupported: True",
        layer.name, label(), to_string(layer.recipe));
    if (terms.warn) {
      terms.warn(fmt::format("layer {}: {} is skipped; it needs the delayed-scaling recipe, the layer has {}",
                             layer.name, label(), to_string(layer.recipe)));
    }
    return;
  }
  for (const auto& [key, params] : config().selected) {
    const TensorKind tensor = key.second.value();
    AMAXSCOPE_CHECK(!is_result(tensor), ErrorCode::kConfig,
                    "layer {}: {} scales activation, weight and gradient; {} is the result of a GEMM and not "
                    "quantized",
                    layer.name, label(), to_string(tensor));
    AMAXSCOPE_CHECK(
        amax_scope_of(params, terms.amax_scope) != AmaxScope::kLocal || !codes_are_gathered(layer, tensor),
        ErrorCode::kConfig,
        "layer {}: {} with amax_scope local would give each rank a scale of its own for {}, whose codes are "
        "gathered "
        "under one scale over {} ranks; use amax_scope tensor or te, or leave this tensor out",
        layer.name, label(), to_string(tensor), layer.tp_group->size());
  }
}

Decision PerTensorScaling::modify_tensor_enabled(const LayerDescription& layer, Gemm gemm, TensorKind tensor,
                                                 std::int64_t iteration) const {
  const FeatureParams* params = config().params(gemm, tensor);
  if (params == nullptr || !is_served(layer)) return Decision::never();
  return Decision::of(params->schedule, iteration);
}

bool PerTensorScaling::takes_amax_over_tp(const InspectedTensor& weight, std::int64_t iteration,
                                          AmaxScope session_default) const {
  return is_served(*weight.description) && lists_amax_over_tp(config(), weight, iteration, session_default,
                                                              [](const FeatureParams&) { return true; });
}

std::shared_ptr<QuantizedTensor> PerTensorScaling::modify_tensor(const ModifyContext& context) {
  AMAXSCOPE_CHECK(context.default_quantizer != nullptr, ErrorCode::kUsage,
                  "layer {}: {} has no quantizer of the recipe for {}, so no format to scale to",
                  context.layer.name, label(), to_string(context.tensor));
  const DType format = context.default_quantizer->format();
  const int margin = static_cast<int>(context.params.get_integer(kMargin, 0));
  return quantize_float8(context.x, format, scoped_scale(context, options_with_margin(format, margin)),
                         context.usage);
}

FeatureEntry per_tensor_scaling_entry() {
  return {
      .schema = {.name = "PerTensorScaling",
                 .doc = "Casts the listed tensors of the listed GEMMs with a scale from their current amax "
                        "instead of the recipe's delayed scale. Needs the delayed-scaling recipe.",
                 .takes_gemms = true,
                 .takes_tensors = true,
                 .keys = {{.name = std::string(kMargin),
                           .type = KeyType::kInteger,
                           .default_text = "0",
                           .doc = "The amax maps to the format's maximum * 2^-margin.",
                           .minimum = 0,
                           .addition = true},
                          amax_scope_key(),
                          {.name = std::string(kSkipUnsupported),
                           .type = KeyType::kBool,
                           .default_text = "False",
                           .doc =
                               "Skips layers without the delayed-scaling recipe, with a warning, instead of "
                               "refusing them.",
                           .addition = true}}},
      .make = [](FeatureConfig config) { return std::make_unique<PerTensorScaling>(std::move(config)); }};
}

}  // namespace amaxscope
