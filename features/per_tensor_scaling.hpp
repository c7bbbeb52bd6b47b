// PerTensorScaling: casts with a scale from the current amax where the recipe would use its delayed scale.
#pragma once

#include "runtime/feature/registry.hpp"

namespace amaxscope {

/// Needs the delayed-scaling recipe, whose format it keeps; the recipe's history does not see the tensor in
/// the directions that are modified.
class PerTensorScaling final : public Feature {
 public:
  explicit PerTensorScaling(FeatureConfig config) : Feature(std::move(config)) {}

  [[nodiscard]] bool alters_numerics() const override { return true; }
  void check_layer(const LayerDescription& layer) const override { admit_layer(layer, {}); }
  /// Refuses, naming layer and section: another recipe than delayed scaling (a warning instead under
  /// skip_unsupported: the feature then leaves the layer alone), results of GEMMs, and a scale of each rank's
  /// own for a tensor whose codes are gathered over the ranks.
  void admit_layer(const LayerDescription& layer, const LayerTerms& terms) const override;
  [[nodiscard]] Decision modify_tensor_enabled(const LayerDescription& layer, Gemm gemm, TensorKind tensor,
                                               std::int64_t iteration) const override;
  [[nodiscard]] bool modifies_to_quantized(const LayerDescription&, Gemm, TensorKind) const override {
    return true;
  }
  [[nodiscard]] bool takes_amax_over_tp(const InspectedTensor& weight, std::int64_t iteration,
                                        AmaxScope session_default) const override;
  [[nodiscard]] std::shared_ptr<QuantizedTensor> modify_tensor(const ModifyContext& context) override;
};

FeatureEntry per_tensor_scaling_entry();

}  // namespace amaxscope
