#include "megatron/layers/weight_operand.hpp"

namespace amaxscope::megatron {

namespace {

bool covers(Usage present, Usage wanted) {
  return (present.rowwise || !wanted.rowwise) && (present.columnwise || !wanted.columnwise);
}

}  // namespace

void WeightOperand::prepare(const TensorView& weight, DebugQuantizer* debug, const TensorMoment& moment) {
  // Backward needs the columnwise direction, and a forward that is to be run again does not know of it yet.
  const Usage usage{.rowwise = true, .columnwise = moment.phase != Phase::kEval};
  // A tensor of the plain path has no plan to refresh by, and the other way round: a change of path makes it
  // anew.
  const bool reusable =
      operand_ != nullptr && is_debug_ == (debug != nullptr) && covers(operand_->usage(), usage);
  const bool is_first_use = moment.microbatch == 0 && moment.phase != Phase::kRecompute;
  if (reusable && !is_first_use) return use_again(weight, debug, moment);
  make(weight, debug, moment, usage, reusable);
  is_debug_ = debug != nullptr;
}

void WeightOperand::make(const TensorView& weight, DebugQuantizer* debug, const TensorMoment& moment,
                         Usage usage, bool in_place) {
  if (codes_only_) {
    if (codes_ == nullptr) {
      codes_ = recipe_->quantize(weight, {.rowwise = true, .columnwise = true}, moment);
    } else {
      recipe_->update(weight, *codes_, moment);
    }
    operand_ = debug != nullptr ? debug->wrap(codes_, moment) : codes_;
    return;
  }
  Quantizer* const quantizer = debug != nullptr ? debug : recipe_.get();
  if (quantizer == nullptr) {
    operand_ = std::make_shared<HighPrecisionTensor>(weight);
  } else if (in_place) {
    quantizer->update(weight, *operand_, moment);
  } else {
    operand_ = quantizer->quantize(weight, usage, moment);
  }
}

void WeightOperand::use_again(const TensorView& weight, DebugQuantizer* debug,
                              const TensorMoment& moment) const {
  if (debug != nullptr) debug->inspect_reuse(weight, *operand_, moment);
}

}  // namespace amaxscope::megatron
