#include "features/fake_quant.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/error.hpp"
#include "features/padded.hpp"
#include "features/scoped_amax.hpp"
#include "kernels/codec/scale.hpp"
#include "runtime/quantizers/current_scaling.hpp"

namespace amaxscope {

namespace {

constexpr std::string_view kFormat = "quant_format";

/// The key's words: the recipe whose quantizer makes the codes, and their format.
struct NamedFormat {
  std::string_view name;
  RecipeKind recipe;
  DType dtype;
};
constexpr std::array kFormats = {NamedFormat{"FP8E4M3", RecipeKind::kCurrent, DType::kE4M3},
                                 NamedFormat{"FP8E5M2", RecipeKind::kCurrent, DType::kE5M2},
                                 NamedFormat{"MXFP8E4M3", RecipeKind::kMxfp8, DType::kE4M3},
                                 NamedFormat{"MXFP8E5M2", RecipeKind::kMxfp8, DType::kE5M2},
                                 NamedFormat{"NVFP4", RecipeKind::kNvfp4, DType::kE2M1},
                                 NamedFormat{"FP8BLOCKE4M3", RecipeKind::kBlock, DType::kE4M3}};

const NamedFormat& format_of(const FeatureParams& params) {
  const std::string name = params.get_string(kFormat, "");
  const auto found = std::ranges::find(kFormats, name, &NamedFormat::name);
  AMAXSCOPE_CHECK(found != kFormats.end(), ErrorCode::kConfig, "FakeQuant: {} \"{}\" is none", kFormat, name);
  return *found;
}

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const NamedFormat& format : kFormats) names.emplace_back(format.name);
  return names;
}

/// The dtype that a modified tensor comes back in.
DType result_dtype(const ModifyContext& context) {
  return is_result(context.tensor) ? context.x.dtype() : context.layer.compute_dtype;
}

}  // namespace

void FakeQuant::admit_layer(const LayerDescription& layer, const LayerTerms& terms) const {
  for (const auto& [key, params] : config().selected) {
    const TensorKind tensor = key.second.value();
    if (amax_scope_of(params, terms.amax_scope) != AmaxScope::kTensor) continue;
    AMAXSCOPE_CHECK(
        layout_of(layer, tensor) != Layout::kPartial, ErrorCode::kConfig,
        "layer {}: {} selects {}, which is a partial sum on each of {} ranks, so no scale of the whole "
        "tensor exists; use amax_scope local, or leave this tensor out",
        layer.name, label(), to_string(tensor), layer.tp_group->size());
  }
}

Decision FakeQuant::fp8_gemm_enabled(const LayerDescription&, Gemm gemm, std::int64_t iteration) const {
  Decision enabled = Decision::always();
  for (const TensorKind tensor : kAllTensors) {
    const FeatureParams* params = config().params(gemm, tensor);
    if (params == nullptr) continue;
    const Decision due = Decision::of(params->schedule, iteration);
    enabled.enabled = enabled.enabled && !due.enabled;
    enabled.next = earlier(enabled.next, due.next);
  }
  return enabled;
}

Decision FakeQuant::modify_tensor_enabled(const LayerDescription&, Gemm gemm, TensorKind tensor,
                                          std::int64_t iteration) const {
  const FeatureParams* params = config().params(gemm, tensor);
  return params == nullptr ? Decision::never() : Decision::of(params->schedule, iteration);
}

bool FakeQuant::takes_amax_over_tp(const InspectedTensor& weight, std::int64_t iteration,
                                   AmaxScope session_default) const {
  return lists_amax_over_tp(config(), weight, iteration, session_default, [](const FeatureParams& params) {
    return has_tensor_amax(format_of(params).recipe);
  });
}

bool FakeQuant::directions_alike(const FeatureParams& params) const {
  return format_of(params).recipe == RecipeKind::kCurrent;
}

std::shared_ptr<QuantizedTensor> FakeQuant::modify_tensor(const ModifyContext& context) {
  const NamedFormat& format = format_of(context.params);
  if (format.recipe != RecipeKind::kCurrent) return through_blocks(context);
  const auto codes =
      quantize_float8(context.x, format.dtype, scoped_scale(context, {.max_value = fp8_max(format.dtype)}),
                      {.rowwise = true, .columnwise = false});
  return std::make_shared<HighPrecisionTensor>(codes->dequantize(result_dtype(context), Direction::kRowwise),
                                               codes->format_name(Direction::kRowwise));
}

std::shared_ptr<QuantizedTensor> FakeQuant::through_blocks(const ModifyContext& context) {
  const NamedFormat& format = format_of(context.params);
  const Direction direction = context.usage.rowwise ? Direction::kRowwise : Direction::kColumnwise;
  const Padded padded(context.x, required_multiple(format.recipe));
  const auto codes = quantizers_.quantize(
      context, format.recipe, format.dtype, padded.view(),
      {.rowwise = direction == Direction::kRowwise, .columnwise = direction == Direction::kColumnwise});
  const Tensor values = codes->dequantize(result_dtype(context), direction);
  return std::make_shared<HighPrecisionTensor>(cropped(values.view(), context.x.shape()),
                                               codes->format_name(direction));
}

FeatureEntry fake_quant_entry() {
  return {
      .schema = {.name = "FakeQuant",
                 .doc =
                     "Quantizes and dequantizes the listed tensors of the listed GEMMs; these GEMMs run in "
                     "high precision.",
                 .takes_gemms = true,
                 .takes_tensors = true,
                 .keys = {{.name = std::string(kFormat),
                           .type = KeyType::kString,
                           .required = true,
                           .default_text = "",
                           .doc = "The format to go through. FP8E4M3 and FP8E5M2 have one scale for the "
                                  "tensor, the others scales for blocks along the direction of the GEMM.",
                           .allowed = format_names()},
                          amax_scope_key()}},
      .make = [](FeatureConfig config) { return std::make_unique<FakeQuant>(std::move(config)); }};
}

}  // namespace amaxscope
