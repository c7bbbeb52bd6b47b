// A layer's weight as a GEMM operand: made once a step, kept over the step's micro-batches, and shown to the
// debug quantizer at every use. Used by one thread.
#pragma once

#include <memory>

#include "megatron/parameter.hpp"
#include "runtime/quantizers/debug_quantizer.hpp"

namespace amaxscope::megatron {

class WeightOperand {
 public:
  /// recipe null: the weight stays in high precision.
  explicit WeightOperand(std::shared_ptr<Quantizer> recipe) : recipe_(std::move(recipe)) {}

  /// Makes the operand anew at the first micro-batch of a forward, or when it was made on another path (with
  /// or without debugging) or lacks a direction; otherwise it is the one of before. debug: the weight's, or
  /// null outside of debug iterations; told of a new operand by quantize or update, of an old one by
  /// inspect_reuse. May be collective over tp, as the recipe is.
  void prepare(const Parameter& weight, DebugQuantizer* debug, const TensorMoment& moment);
  /// Backward goes on with the operand of the forward: tells debug so.
  void use_again(const Parameter& weight, DebugQuantizer* debug, const TensorMoment& moment) const;
  /// After prepare().
  [[nodiscard]] GemmOperand operand(Direction direction) const { return operand_->operand(direction); }

 private:
  std::shared_ptr<Quantizer> recipe_;
  std::shared_ptr<QuantizedTensor> operand_;
  bool is_debug_ = false;  ///< made by a debug quantizer
};

}  // namespace amaxscope::megatron
