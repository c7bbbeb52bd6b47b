// DisableQuantizationGEMM and DisableQuantizationLayer: GEMMs that run in high precision.
#pragma once

#include "runtime/feature/registry.hpp"

namespace amaxscope {

/// The GEMMs it lists.
class DisableQuantizationGemm final : public Feature {
 public:
  explicit DisableQuantizationGemm(FeatureConfig config) : Feature(std::move(config)) {}
  [[nodiscard]] bool alters_numerics() const override { return true; }
  [[nodiscard]] Decision fp8_gemm_enabled(const LayerDescription& layer, Gemm gemm,
                                          std::int64_t iteration) const override;
};

/// All three GEMMs of a layer.
class DisableQuantizationLayer final : public Feature {
 public:
  explicit DisableQuantizationLayer(FeatureConfig config) : Feature(std::move(config)) {}
  [[nodiscard]] bool alters_numerics() const override { return true; }
  [[nodiscard]] Decision fp8_gemm_enabled(const LayerDescription& layer, Gemm gemm,
                                          std::int64_t iteration) const override;
};

FeatureEntry disable_quantization_gemm_entry();
FeatureEntry disable_quantization_layer_entry();

}  // namespace amaxscope
