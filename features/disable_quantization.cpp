#include "features/disable_quantization.hpp"

namespace amaxscope {

namespace {

/// Quantization is enabled wherever the feature is not selected or not due.
Decision enabled_unless_due(const FeatureParams* params, std::int64_t iteration) {
  if (params == nullptr) return Decision::always();
  const Decision due = Decision::of(params->schedule, iteration);
  return {!due.enabled, due.next};
}

}  // namespace

Decision DisableQuantizationGemm::fp8_gemm_enabled(const LayerDescription&, Gemm gemm,
                                                   std::int64_t iteration) const {
  return enabled_unless_due(config().params(gemm, std::nullopt), iteration);
}

Decision DisableQuantizationLayer::fp8_gemm_enabled(const LayerDescription&, Gemm,
                                                    std::int64_t iteration) const {
  return enabled_unless_due(config().params(std::nullopt, std::nullopt), iteration);
}

FeatureEntry disable_quantization_gemm_entry() {
  return {
      .schema = {.name = "DisableQuantizationGEMM",
                 .deprecated_aliases = {"DisableFP8GEMM"},
                 .doc =
                     "Runs the listed GEMMs (fprop, dgrad, wgrad) in high precision; the other GEMMs of the "
                     "layer keep their recipe.",
                 .takes_gemms = true},
      .make = [](FeatureConfig config) {
        return std::make_unique<DisableQuantizationGemm>(std::move(config));
      }};
}

FeatureEntry disable_quantization_layer_entry() {
  return {.schema = {.name = "DisableQuantizationLayer",
                     .deprecated_aliases = {"DisableFP8Layer"},
                     .doc = "Runs all three GEMMs of the layer in high precision."},
          .make = [](FeatureConfig config) {
            return std::make_unique<DisableQuantizationLayer>(std::move(config));
          }};
}

}  // namespace amaxscope
