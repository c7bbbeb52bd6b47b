// The planted faults of a cached weight: one that is not refreshed, one whose columnwise copy is not, one
// whose columnwise copy is overwritten. Built only for layers in which one is planted.
#pragma once

#include <memory>
#include <string>

#include "megatron/faults.hpp"
#include "runtime/quantizers/quantized_tensor.hpp"
#include "runtime/quantizers/quantizer.hpp"

namespace amaxscope::megatron {

class WeightFaults {
 public:
  /// The table must outlive it.
  WeightFaults(const FaultTable& faults, std::string layer) : faults_(faults), layer_(std::move(layer)) {}

  /// Whether any such fault is planted in this layer.
  [[nodiscard]] static bool planted(const FaultTable& faults, std::string_view layer) noexcept;

  /// Before the operand is made: `fresh`, the one of before, is kept when a fault of now will want it back.
  void before_refresh(const std::shared_ptr<QuantizedTensor>& fresh);
  /// Whether the operand is made at all: not when all micro-batches use the stale one.
  [[nodiscard]] bool refreshes() const;
  /// After it was made.
  void after_refresh() noexcept { made_in_ = faults_.iteration(); }
  /// What takes its place in this micro-batch; `fresh` itself when nothing strikes. Throws Error(kUsage) for
  /// a columnwise copy of a kind that cannot be overwritten.
  [[nodiscard]] std::shared_ptr<QuantizedTensor> in_use(const std::shared_ptr<QuantizedTensor>& fresh,
                                                        const TensorMoment& moment) const;

 private:
  [[nodiscard]] const Fault* due(FaultKind kind) const noexcept {
    return faults_.due(kind, layer_, TensorKind::kWeight);
  }

  const FaultTable& faults_;
  std::string layer_;
  std::int64_t made_in_ = -1;  ///< iteration
  std::shared_ptr<QuantizedTensor> stale_;
  std::shared_ptr<QuantizedTensor> stale_columnwise_;
};

}  // namespace amaxscope::megatron
