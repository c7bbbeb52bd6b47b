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
      fresh_ != nullptr && is_debug_ == (debug != nullptr) && covers(fresh_->usage(), usage);
  const bool is_first_use = moment.microbatch == 0 && moment.phase != Phase::kRecompute;
  if (reusable && !is_first_use) return use_again(weight, debug, moment);
  if (faults_ != nullptr) {
    faults_->before_refresh(fresh_);
    if (!faults_->refreshes()) return use_again(weight, debug, moment);
  }
  make(weight, debug, moment, usage, reusable && faults_ == nullptr);
  is_debug_ = debug != nullptr;
  operand_ = fresh_;
  if (faults_ == nullptr) return;
  faults_->after_refresh();
  operand_ = faults_->in_use(fresh_, moment);
  if (operand_ != fresh_ && debug != nullptr)
    debug->inspect_reuse(weight, *as_debug_operand(operand_), moment);
}

void WeightOperand::make_codes(const TensorView& weight, const TensorMoment& moment, bool in_place) {
  if (in_place && codes_ != nullptr) {
    recipe_->update(weight, *codes_, moment);
  } else {
    codes_ = recipe_->quantize(weight, {.rowwise = true, .columnwise = true}, moment);
  }
}

void WeightOperand::make(const TensorView& weight, DebugQuantizer* debug, const TensorMoment& moment,
                         Usage usage, bool in_place) {
  if (codes_only_) {
    make_codes(weight, moment, faults_ == nullptr);
    fresh_ = debug != nullptr ? debug->wrap(codes_, moment) : codes_;
    return;
  }
  Quantizer* const quantizer = debug != nullptr ? debug : recipe_.get();
  if (quantizer == nullptr) {
    fresh_ = std::make_shared<HighPrecisionTensor>(weight);
  } else if (in_place) {
    quantizer->update(weight, *fresh_, moment);
  } else {
    fresh_ = quantizer->quantize(weight, usage, moment);
  }
}

void WeightOperand::use_again(const TensorView& weight, DebugQuantizer* debug, const TensorMoment& moment) {
  if (faults_ != nullptr) operand_ = faults_->in_use(fresh_, moment);
  if (debug != nullptr) debug->inspect_reuse(weight, *as_debug_operand(operand_), moment);
}

}  // namespace amaxscope::megatron
