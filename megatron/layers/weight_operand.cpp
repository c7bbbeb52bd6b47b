#include "megatron/layers/weight_operand.hpp"

namespace amaxscope::megatron {

namespace {

bool covers(Usage present, Usage wanted) {
  return (present.rowwise || !wanted.rowwise) && (present.columnwise || !wanted.columnwise);
}

}  // namespace

void WeightOperand::prepare(const Parameter& weight, DebugQuantizer* debug, const TensorMoment& moment) {
  // Backward needs the columnwise direction, and a forward that is to be run again does not know of it yet.
  const Usage usage{.rowwise = true, .columnwise = moment.phase != Phase::kEval};
  // A tensor of the plain path has no plan to refresh by, and the other way round: a change of path makes it
  // anew.
  const bool reusable =
      operand_ != nullptr && is_debug_ == (debug != nullptr) && covers(operand_->usage(), usage);
  const bool is_first_use = moment.microbatch == 0 && moment.phase != Phase::kRecompute;
  if (reusable && !is_first_use) return use_again(weight, debug, moment);
  Quantizer* const quantizer = debug != nullptr ? debug : recipe_.get();
  if (quantizer == nullptr) {
    operand_ = std::make_shared<HighPrecisionTensor>(weight.compute.view());
  } else if (reusable) {
    quantizer->update(weight.compute.view(), *operand_, moment);
  } else {
    operand_ = quantizer->quantize(weight.compute.view(), usage, moment);
  }
  is_debug_ = debug != nullptr;
}

void WeightOperand::use_again(const Parameter& weight, DebugQuantizer* debug,
                              const TensorMoment& moment) const {
  if (debug != nullptr) debug->inspect_reuse(weight.compute.view(), *operand_, moment);
}

}  // namespace amaxscope::megatron
