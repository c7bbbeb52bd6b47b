// The quantizer that lets features decide, for each direction of one tensor, what becomes of it.
// Made once per tensor and layer, used by one thread. It owns nothing of the layer or the features.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/feature/feature.hpp"
#include "runtime/quantizers/debug_quantized_tensor.hpp"
#include "runtime/quantizers/quantizer.hpp"

namespace amaxscope {

enum class Plan {
  kStandardQuantize,  ///< the recipe's quantizer
  kHighPrecision,     ///< the tensor itself, in the compute dtype
  kModifyTensor,      ///< the one feature that modifies it
};
/// As `amaxscope check` prints: "Quantize", "High Precision", "modify_tensor()".
std::string_view to_string(Plan plan) noexcept;

/// What a session lends to its debug quantizers.
struct DebugServices {
  AmaxScope amax_scope = AmaxScope::kTensor;
  AmaxReducer* tp_amax = nullptr;
};

class DebugQuantizer final : public Quantizer {
 public:
  /// features: those whose section matched the layer, in the order of the file. parent may be null (results, and
  /// layers in high precision). layer, features and services must outlive the quantizer.
  DebugQuantizer(const LayerDescription& layer, TensorKind tensor, std::shared_ptr<Quantizer> parent,
                 std::vector<Feature*> features, const DebugServices& services);

  /// Asks the features what to do at this iteration; once per iteration however often it is called, and everything
  /// until the next call uses this answer, also a backward that runs after the session's step().
  /// Throws Error(kConfig) when two features modify the same (gemm, tensor) now, naming both sections.
  void begin_iteration(std::int64_t iteration);
  [[nodiscard]] std::int64_t iteration() const noexcept { return iteration_; }

  [[nodiscard]] Plan plan(Direction direction) const;
  [[nodiscard]] bool inspects() const noexcept { return !inspecting_.empty(); }
  /// The feature behind kModifyTensor, or null.
  [[nodiscard]] const Feature* modifier(Direction direction) const noexcept;
  /// Features that have a say in this tensor now, for `check`: names in file order.
  [[nodiscard]] std::vector<std::string> acting_features() const;
  /// Whether this iteration differs in any way from the plain path.
  [[nodiscard]] bool any_feature_enabled() const noexcept;
  /// The next iteration at which any answer may change; none: never.
  [[nodiscard]] std::optional<std::int64_t> next_debug_iteration() const noexcept { return next_; }

  /// Always a DebugQuantizedTensor. Order: parent once for every STANDARD direction, modify columnwise then
  /// rowwise (one call when one feature modifies both alike), high precision, then every inspecting feature sees
  /// the original and both operands.
  [[nodiscard]] std::shared_ptr<QuantizedTensor> quantize(const TensorView& x, Usage usage,
                                                          const TensorMoment& moment) override;
  /// Refreshes a result of an earlier quantize by the plan of *now*; members whose kind no longer fits the plan are
  /// made anew. target must be a DebugQuantizedTensor (Error(kUsage)).
  void update(const TensorView& x, QuantizedTensor& target, const TensorMoment& moment) override;
  /// For a weight that exists in FP8 already: requires STANDARD in both directions (Error(kConfig) naming the
  /// feature that asks for more); inspected without an original.
  [[nodiscard]] std::shared_ptr<QuantizedTensor> wrap(std::shared_ptr<QuantizedTensor> quantized,
                                                      const TensorMoment& moment);
  /// For results: modifies in place by the plan, then inspects. Error(kUsage) for an operand.
  void process_gemm_output(const MutableTensorView& result, const TensorMoment& moment);

  [[nodiscard]] RecipeKind recipe() const noexcept override;
  [[nodiscard]] DType format() const noexcept override;
  [[nodiscard]] Quantizer* parent() const noexcept { return parent_.get(); }
  [[nodiscard]] const InspectedTensor& inspected() const noexcept { return inspected_; }

 private:
  struct DirectionPlan {
    Plan plan = Plan::kStandardQuantize;
    Feature* modifier = nullptr;
    const FeatureParams* params = nullptr;
  };
  DirectionPlan decide(Direction direction);
  std::shared_ptr<QuantizedTensor> modify(const DirectionPlan& plan, const TensorView& x, Usage usage,
                                          const TensorMoment& moment);
  void inspect(const TensorView* original, const QuantizedTensor* rowwise, const QuantizedTensor* columnwise,
               const TensorMoment& moment);
  void merge_next(const Decision& decision);

  const LayerDescription& layer_;
  TensorKind tensor_;
  std::shared_ptr<Quantizer> parent_;
  std::vector<Feature*> features_;
  const DebugServices& services_;
  InspectedTensor inspected_;

  std::int64_t iteration_ = -1;
  std::array<DirectionPlan, 2> plans_;
  std::vector<Feature*> inspecting_;
  std::optional<std::int64_t> next_;
};

}  // namespace amaxscope
