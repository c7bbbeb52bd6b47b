#include "features/fake_quant.hpp"

#include <array>

#include "core/error.hpp"
#include "features/scoped_amax.hpp"
#include "kernels/codec/scale.hpp"
#include "runtime/quantizers/current_scaling.hpp"

namespace amaxscope {

namespace {

constexpr std::string_view kFormat = "quant_format";

/// Formats of the key; those without a dtype are not built yet.
struct NamedFormat {
  std::string_view name;
  std::optional<DType> dtype;
};
constexpr std::array kFormats = {
    NamedFormat{"FP8E4M3", DType::kE4M3},   NamedFormat{"FP8E5M2", DType::kE5M2},
    NamedFormat{"MXFP8E4M3", std::nullopt}, NamedFormat{"MXFP8E5M2", std::nullopt},
    NamedFormat{"NVFP4", std::nullopt},     NamedFormat{"FP8BLOCKE4M3", std::nullopt}};

std::optional<DType> format_of(const FeatureParams& params) {
  const std::string name = params.get_string(kFormat, "");
  for (const NamedFormat& format : kFormats) {
    if (format.name == name) return format.dtype;
  }
  return std::nullopt;
}

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const NamedFormat& format : kFormats) names.emplace_back(format.name);
  return names;
}

}  // namespace

FakeQuant::FakeQuant(FeatureConfig config) : Feature(std::move(config)) {
  for (const auto& [key, params] : this->config().selected) {
    AMAXSCOPE_CHECK(format_of(params), ErrorCode::kConfig,
                    "{}: {} {} is not built yet; FP8E4M3 and FP8E5M2 are", label(), kFormat,
                    params.get_string(kFormat, "(none)"));
  }
}

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

std::shared_ptr<QuantizedTensor> FakeQuant::modify_tensor(const ModifyContext& context) {
  const DType format = format_of(context.params).value();
  const ScaleFromAmax scale = scale_from_amax(scoped_amax(context), {.max_value = fp8_max(format)});
  const auto codes = quantize_float8(context.x, format, scale.scale, {.rowwise = true, .columnwise = false});
  const DType dtype = is_result(context.tensor) ? context.x.dtype() : context.layer.compute_dtype;
  return std::make_shared<HighPrecisionTensor>(codes->dequantize(dtype, Direction::kRowwise));
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
                           .doc = "The format to go through. FP8E4M3 and FP8E5M2 are built.",
                           .allowed = format_names()},
                          amax_scope_key()}},
      .make = [](FeatureConfig config) { return std::make_unique<FakeQuant>(std::move(config)); }};
}

}  // namespace amaxscope
