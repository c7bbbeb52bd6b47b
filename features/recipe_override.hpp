// RecipeOverride: quantizes operands with another recipe than the running one.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "features/delayed_history.hpp"
#include "features/scoped_quantizers.hpp"
#include "runtime/feature/registry.hpp"
#include "runtime/quantizers/recipe.hpp"

namespace amaxscope {

/// Works under every recipe and without one. Both operands of a GEMM must end up quantized, which the session
/// checks when the layer is registered. Delayed scaling as an override keeps a history of its own, which it
/// fills from the first iteration on, so that the first scale it uses is not the initial 1; the recipe's
/// history does not see the tensor in the directions that are overridden.
class RecipeOverride final : public Feature {
 public:
  explicit RecipeOverride(FeatureConfig config) : Feature(std::move(config)) {}

  [[nodiscard]] bool alters_numerics() const override { return true; }
  void attach(const FeatureServices& services) override {
    quantizers_.set_rank(services.world_rank);
    quantizers_.keep_in(kept_);
  }
  void check_layer(const LayerDescription& layer) const override { admit_layer(layer, {}); }
  /// Refuses, naming layer and section: results of GEMMs, and a scale of each rank's own for a tensor whose
  /// codes are gathered over the ranks. Says so when the other operand of a GEMM has another recipe.
  void admit_layer(const LayerDescription& layer, const LayerTerms& terms) const override;
  void register_tensor(const InspectedTensor& tensor, Registration& registration) override;
  [[nodiscard]] Decision modify_tensor_enabled(const LayerDescription& layer, Gemm gemm, TensorKind tensor,
                                               std::int64_t iteration) const override;
  [[nodiscard]] bool modifies_to_quantized(const LayerDescription&, Gemm, TensorKind) const override {
    return true;
  }
  [[nodiscard]] bool takes_amax_over_tp(const InspectedTensor& weight, std::int64_t iteration,
                                        AmaxScope session_default) const override;
  [[nodiscard]] std::shared_ptr<QuantizedTensor> modify_tensor(const ModifyContext& context) override;
  /// Only for the history of delayed scaling.
  [[nodiscard]] Decision inspect_tensor_enabled(const InspectedTensor& tensor,
                                                std::int64_t iteration) const override;
  void inspect_tensor(const InspectContext& context) override;
  /// The amax histories and the places in the random streams.
  void save_state(FeatureState& state) const override { kept_.save(state); }
  void load_state(const FeatureState& state) override { kept_.load(state); }

 private:
  using Key = std::pair<std::string, TensorKind>;  ///< layer, tensor

  [[nodiscard]] DelayedHistory& history_for(const ModifyContext& context);

  ScopedQuantizers quantizers_;
  std::map<Key, DelayedHistory> histories_;
  KeptState kept_;
};

FeatureEntry recipe_override_entry();

}  // namespace amaxscope
