// FakeQuant: quantizes and dequantizes, so that a GEMM in high precision sees what a format would leave.
#pragma once

#include "runtime/feature/registry.hpp"

namespace amaxscope {

class FakeQuant final : public Feature {
 public:
  /// Throws Error(kConfig) naming the section for a quant_format that is known but not built yet.
  explicit FakeQuant(FeatureConfig config);

  [[nodiscard]] bool alters_numerics() const override { return true; }
  void check_layer(const LayerDescription& layer) const override { admit_layer(layer, {}); }
  /// Refuses, naming layer and section, a tensor that is a partial sum on each rank when its scale is to be
  /// that of the whole tensor.
  void admit_layer(const LayerDescription& layer, const LayerTerms& terms) const override;
  /// A GEMM with a selected tensor runs in high precision while that is due.
  [[nodiscard]] Decision fp8_gemm_enabled(const LayerDescription& layer, Gemm gemm,
                                          std::int64_t iteration) const override;
  [[nodiscard]] Decision modify_tensor_enabled(const LayerDescription& layer, Gemm gemm, TensorKind tensor,
                                               std::int64_t iteration) const override;
  /// Operands come back in the layer's compute dtype, results in their own.
  [[nodiscard]] std::shared_ptr<QuantizedTensor> modify_tensor(const ModifyContext& context) override;
};

FeatureEntry fake_quant_entry();

}  // namespace amaxscope
