// The quantizer that lets features decide, for each direction of one tensor, what becomes of it.
// Made once per tensor and layer, used by one thread. It owns nothing of the layer or the features.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/feature/feature.hpp"
#include "runtime/quantizers/debug_quantized_tensor.hpp"
#include "runtime/quantizers/quantizer.hpp"
#include "runtime/quantizers/tensor_plan.hpp"

namespace amaxscope {

class WorkerPool;  // kernels/worker_pool.hpp

/// What a session lends to its debug quantizers.
struct DebugServices {
  AmaxScope amax_scope = AmaxScope::kTensor;
  AmaxReducer* tp_amax = nullptr;
  /// What kernels compute on when they get a CPU tensor that has no stream of its own; operands keep it.
  /// Null: the calling thread.
  std::shared_ptr<WorkerPool> threads = nullptr;
  /// Told of an exception from a feature's hook. For inspecting hooks it may return, and the tensor goes on
  /// unobserved; after a modifying one (`altering`) the exception goes on to the trainer. Empty: always goes
  /// on.
  std::function<void(const Feature&, const InspectedTensor&, bool altering, const std::exception&)>
      hook_failed = {};
  /// Told what an inspected operand is in, before the features see it. Empty: nobody asks.
  std::function<void(const InspectedTensor&, const DebugQuantizedTensor&)> inspects = {};
};

class DebugQuantizer final : public Quantizer {
 public:
  /// features: those whose section matched the layer, in the order of the file. parent may be null (results,
  /// and layers in high precision). layer, features and services must outlive the quantizer.
  DebugQuantizer(const LayerDescription& layer, TensorKind tensor, std::shared_ptr<Quantizer> parent,
                 std::vector<Feature*> features, const DebugServices& services);

  /// Asks the features what to do at this iteration; once per iteration however often it is called, and
  /// everything until the next call uses this answer, also a backward that runs after the session's step().
  /// Throws Error(kConfig) when two features modify the same (gemm, tensor) now, naming both sections.
  void begin_iteration(std::int64_t iteration);
  /// Where results of kernels wait while a tensor is inspected; null: nowhere. Must outlive the quantizer.
  void set_device_results(DeviceResults* results) noexcept { device_results_ = results; }
  /// Until end_capture() everything is recorded into a CUDA graph: by the directions of this iteration, and
  /// for every feature that may inspect later. Throws as begin_iteration().
  void begin_capture(std::int64_t iteration);
  void end_capture();
  /// What this iteration wants otherwise than the last capture has it; empty: nothing. "weight of fc1: ...".
  [[nodiscard]] std::string changed_since_capture(std::int64_t iteration);

  /// What was planned for later iterations no longer holds: a feature has learned what nobody knew before.
  void replan() noexcept { ahead_.reset(); }
  [[nodiscard]] std::int64_t iteration() const noexcept { return plan_.iteration; }

  /// A direction that the tensor does not have (columnwise of a result) is kHighPrecision.
  [[nodiscard]] Plan plan(Direction wanted) const noexcept { return direction(wanted).plan; }
  [[nodiscard]] bool inspects() const noexcept { return !plan_.inspecting.empty(); }
  /// Whether this result wants the operands of its GEMM and their originals with it now. The layer keeps an
  /// original from one GEMM to a later one only then.
  [[nodiscard]] bool needs_gemm_inputs() const noexcept { return plan_.needs_gemm_inputs; }
  /// The feature behind kModifyTensor, or null.
  [[nodiscard]] const Feature* modifier(Direction wanted) const noexcept {
    return direction(wanted).modifier;
  }
  /// Features that have a say in this tensor now, for `check`: names in file order.
  [[nodiscard]] std::vector<std::string> acting_features() const;
  /// Whether this iteration differs in any way from the plain path.
  [[nodiscard]] bool any_feature_enabled() const noexcept { return plan_.differs; }
  /// The first iteration after this one that may differ from the plain path; none: never again. Exact when
  /// the features' decisions are: with something due once in ten iterations it is the tenth from now, with
  /// something always on it is the next.
  [[nodiscard]] std::optional<std::int64_t> next_debug_iteration() const noexcept { return next_; }

  /// Always a DebugQuantizedTensor. A direction that is not wanted is not made; when the plans of both are
  /// alike they share one object, from which the other can still be had (update_usage). Order: parent once
  /// for every STANDARD direction, modify columnwise then rowwise (one call when one feature modifies both
  /// alike), high precision, then every inspecting feature sees the original and both operands.
  [[nodiscard]] std::shared_ptr<QuantizedTensor> quantize(const TensorView& x, Usage usage,
                                                          const TensorMoment& moment) override;
  /// Refreshes a result of an earlier quantize by the plan of *now*, in the directions that it has: what the
  /// recipe made and makes is refreshed in place, other members are made anew. target must be a
  /// DebugQuantizedTensor (Error(kUsage)).
  void update(const TensorView& x, QuantizedTensor& target, const TensorMoment& moment) override;
  /// Tells the inspecting features that an operand of an earlier quantize, update or wrap is used again;
  /// original is what it should stand for now (no view: it exists in codes only). Changes nothing.
  void inspect_reuse(const TensorView* original, const QuantizedTensor& operand, const TensorMoment& moment);
  void inspect_reuse(const TensorView& original, const QuantizedTensor& operand, const TensorMoment& moment) {
    inspect_reuse(&original, operand, moment);
  }
  /// For a weight that exists in FP8 already: requires STANDARD in both directions (Error(kConfig) naming the
  /// feature that asks for more); inspected without an original.
  [[nodiscard]] std::shared_ptr<QuantizedTensor> wrap(std::shared_ptr<QuantizedTensor> quantized,
                                                      const TensorMoment& moment);
  /// For results: modifies in place by the plan, then inspects. Error(kUsage) for an operand.
  /// inputs: of the GEMM, or null; looked at only when needs_gemm_inputs(). Then originals of operands whose
  /// codes are gathered are gathered too (debug traffic): collective over tp.
  void process_gemm_output(const MutableTensorView& result, const TensorMoment& moment,
                           const GemmInputs* inputs = nullptr);

  [[nodiscard]] RecipeKind recipe() const noexcept override;
  [[nodiscard]] DType format() const noexcept override;
  [[nodiscard]] Quantizer* parent() const noexcept { return parent_.get(); }
  [[nodiscard]] const InspectedTensor& inspected() const noexcept { return inspected_; }

 private:
  void require_begun() const;
  /// Members of the wanted directions by the plan, without inspection. previous: may be refreshed in place.
  std::shared_ptr<DebugQuantizedTensor> make(const TensorView& x, Usage usage, const TensorMoment& moment,
                                             const DebugQuantizedTensor* previous);
  std::shared_ptr<QuantizedTensor> standard(const TensorView& x, Usage usage, const TensorMoment& moment,
                                            const DebugQuantizedTensor* previous);
  std::shared_ptr<QuantizedTensor> modify(const DirectionPlan& plan, const TensorView& x, Usage usage,
                                          const TensorMoment& moment);
  /// x, computed on by the session's threads when it says nothing else.
  [[nodiscard]] TensorView with_threads(const TensorView& x) const;
  /// An operand that was made of with_threads(x), which may outlive the session.
  [[nodiscard]] std::shared_ptr<QuantizedTensor> made(std::shared_ptr<QuantizedTensor> operand) const;
  using Hook = void (Feature::*)(const InspectContext&);
  void inspect(const TensorView* original, const DebugQuantizedTensor* operands, const TensorMoment& moment,
               Hook hook = &Feature::inspect_tensor, const GemmInputs* gemm = nullptr);
  /// inspect() of a result with the inputs of its GEMM.
  void inspect_gemm(const MutableTensorView& result, const TensorMoment& moment, const GemmInputs& inputs);
  [[nodiscard]] Tensor gather_original(const TensorView& shard, TensorKind tensor) const;
  [[nodiscard]] const DirectionPlan& direction(Direction wanted) const noexcept {
    return plan_.directions[static_cast<std::size_t>(wanted)];
  }

  const LayerDescription& layer_;
  TensorKind tensor_;
  std::shared_ptr<Quantizer> parent_;
  std::vector<Feature*> features_;
  const DebugServices& services_;
  InspectedTensor inspected_;

  /// Throws Error(kUsage) for what cannot be recorded.
  void require_capturable(const Feature& feature, const TensorView* original) const;

  DeviceResults* device_results_ = nullptr;
  TensorPlan plan_;
  std::optional<TensorPlan> before_capture_;
  std::optional<TensorPlan> captured_;  ///< the last one
  std::optional<TensorPlan> ahead_;     ///< the plan of the iteration after, when it had to be looked at
  std::optional<std::int64_t> next_;
};

}  // namespace amaxscope
