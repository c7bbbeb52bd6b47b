// A layer's weight as a GEMM operand: made once a step, kept over the step's micro-batches, and shown to the
// debug quantizer at every use. Used by one thread.
#pragma once

#include <memory>

#include "megatron/layers/weight_faults.hpp"
#include "runtime/quantizers/debug_quantizer.hpp"

namespace amaxscope::megatron {

class WeightOperand {
 public:
  /// recipe null: the weight stays in high precision. codes_only: the weight exists as the recipe's codes;
  /// they are made from the values as without debugging, and the debug quantizer is given them (wrap). faults
  /// null: none is planted in this weight.
  WeightOperand(std::shared_ptr<Quantizer> recipe, bool codes_only, std::unique_ptr<WeightFaults> faults)
      : recipe_(std::move(recipe)), codes_only_(codes_only), faults_(std::move(faults)) {}

  /// Makes the operand anew at the first micro-batch of a forward, or when it was made on another path (with
  /// or without debugging) or lacks a direction; otherwise it is the one of before. debug: the weight's, or
  /// null outside of debug iterations; told of a new operand by quantize, update or wrap, of an old one by
  /// inspect_reuse. weight: its values, which must stay where they are until the next call where there is no
  /// recipe. May be collective over tp, as the recipe is.
  void prepare(const TensorView& weight, DebugQuantizer* debug, const TensorMoment& moment);
  /// Backward goes on with the operand of the forward: tells debug so.
  void use_again(const TensorView& weight, DebugQuantizer* debug, const TensorMoment& moment);
  /// After prepare() or use_again().
  [[nodiscard]] GemmOperand operand(Direction direction) const { return operand_->operand(direction); }

 private:
  void make(const TensorView& weight, DebugQuantizer* debug, const TensorMoment& moment, Usage usage,
            bool in_place);
  void make_codes(const TensorView& weight, const TensorMoment& moment, bool in_place);

  std::shared_ptr<Quantizer> recipe_;
  bool codes_only_;
  std::unique_ptr<WeightFaults> faults_;
  std::shared_ptr<QuantizedTensor> codes_;    ///< with codes_only
  std::shared_ptr<QuantizedTensor> fresh_;    ///< as it was made
  std::shared_ptr<QuantizedTensor> operand_;  ///< the same, unless a planted fault puts another in its place
  bool is_debug_ = false;                     ///< made by a debug quantizer
};

}  // namespace amaxscope::megatron
