// FakeQuant: quantizes and dequantizes, so that a GEMM in high precision sees what a format would leave.
#pragma once

#include <memory>

#include "features/scoped_quantizers.hpp"
#include "runtime/feature/registry.hpp"

namespace amaxscope {

/// Block formats are aware of the direction: the operand of the rowwise GEMM goes through rowwise blocks, the
/// columnwise one through columnwise blocks, so the two differ. Tensors whose extents do not fill the blocks
/// are padded with zeros for the purpose.
class FakeQuant final : public Feature {
 public:
  explicit FakeQuant(FeatureConfig config) : Feature(std::move(config)) {}

  [[nodiscard]] bool alters_numerics() const override { return true; }
  void attach(const FeatureServices& services) override {
    quantizers_.set_rank(services.world_rank);
    quantizers_.keep_in(kept_);
  }
  void check_layer(const LayerDescription& layer) const override { admit_layer(layer, {}); }
  /// Refuses, naming layer and section, a tensor that is a partial sum on each rank when it is to be
  /// quantized as the whole tensor.
  void admit_layer(const LayerDescription& layer, const LayerTerms& terms) const override;
  /// A GEMM with a selected tensor runs in high precision while that is due.
  [[nodiscard]] Decision fp8_gemm_enabled(const LayerDescription& layer, Gemm gemm,
                                          std::int64_t iteration) const override;
  [[nodiscard]] Decision modify_tensor_enabled(const LayerDescription& layer, Gemm gemm, TensorKind tensor,
                                               std::int64_t iteration) const override;
  [[nodiscard]] bool takes_amax_over_tp(const InspectedTensor& weight, std::int64_t iteration,
                                        AmaxScope session_default) const override;
  [[nodiscard]] bool directions_alike(const FeatureParams& params) const override;
  /// Operands come back in the layer's compute dtype, results in their own.
  [[nodiscard]] std::shared_ptr<QuantizedTensor> modify_tensor(const ModifyContext& context) override;

  /// The places in the random streams.
  void save_state(FeatureState& state) const override { kept_.save(state); }
  void load_state(const FeatureState& state) override { kept_.load(state); }

 private:
  [[nodiscard]] std::shared_ptr<QuantizedTensor> through_blocks(const ModifyContext& context);

  ScopedQuantizers quantizers_;
  KeptState kept_;
};

FeatureEntry fake_quant_entry();

}  // namespace amaxscope
