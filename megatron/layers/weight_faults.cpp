#include "megatron/layers/weight_faults.hpp"

#include <cstring>

#include "core/error.hpp"
#include "runtime/quantizers/block_scaled_tensor.hpp"
#include "runtime/quantizers/debug_quantized_tensor.hpp"

namespace amaxscope::megatron {

namespace {

std::shared_ptr<QuantizedTensor> member(const std::shared_ptr<QuantizedTensor>& operand, bool transpose) {
  const auto* const pair = dynamic_cast<const DebugQuantizedTensor*>(operand.get());
  return pair == nullptr ? operand : pair->get_tensor(transpose);
}

/// A rowwise copy of one object and a columnwise one of another.
std::shared_ptr<QuantizedTensor> joined(const std::shared_ptr<QuantizedTensor>& rowwise,
                                        std::shared_ptr<QuantizedTensor> columnwise) {
  return std::make_shared<DebugQuantizedTensor>(rowwise->shape(), member(rowwise, false),
                                                std::move(columnwise));
}

/// As if something had written over the memory: all bits set, which is NaN in every format that has one.
Tensor overwritten(const TensorView& like) {
  Tensor values(like.dtype(), like.shape());
  if (values.bytes() != 0) std::memset(values.mutable_view().data(), 0xFF, values.bytes());
  return values;
}

std::shared_ptr<QuantizedTensor> overwritten_columnwise(const QuantizedTensor& sound,
                                                        const std::string& layer) {
  if (const auto* const codes = dynamic_cast<const Float8Tensor*>(&sound)) {
    return std::make_shared<Float8Tensor>(codes->shape(), codes->format(Direction::kColumnwise), Tensor{},
                                          overwritten(codes->codes(Direction::kColumnwise).view()),
                                          codes->scale(), codes->scale_inv());
  }
  const auto* const blocks = dynamic_cast<const BlockScaledTensor*>(&sound);
  AMAXSCOPE_CHECK(blocks != nullptr, ErrorCode::kUsage,
                  "fault overwrite_columnwise: the weight of {} is in high precision, where both directions "
                  "are one memory",
                  layer);
  const BlockScaledView view = blocks->blocks(Direction::kColumnwise);
  return std::make_shared<BlockScaledTensor>(
      blocks->shape(), blocks->recipe(),
      BlockScaledCodes{.codes = {}, .scales = {}, .layout = blocks->blocks(Direction::kRowwise).layout},
      BlockScaledCodes{.codes = overwritten(view.codes),
                       .scales = overwritten(view.scales),
                       .layout = view.layout,
                       .tensor_scale = view.tensor_scale,
                       .rotated = view.rotated});
}

}  // namespace

bool WeightFaults::planted(const FaultTable& faults, std::string_view layer) noexcept {
  return faults.planted(FaultKind::kStaleWeight, layer, TensorKind::kWeight) ||
         faults.planted(FaultKind::kStaleColumnwise, layer, TensorKind::kWeight) ||
         faults.planted(FaultKind::kOverwriteColumnwise, layer, TensorKind::kWeight);
}

void WeightFaults::before_refresh(const std::shared_ptr<QuantizedTensor>& fresh) {
  // What was made in this iteration is of the weights of now; what has one direction served an evaluation.
  const bool is_old = fresh != nullptr && made_in_ < faults_.iteration() &&
                      fresh->usage() == Usage{.rowwise = true, .columnwise = true};
  if (!is_old) return;
  if (stale_ == nullptr && due(FaultKind::kStaleWeight) != nullptr) stale_ = fresh;
  if (stale_columnwise_ == nullptr && due(FaultKind::kStaleColumnwise) != nullptr)
    stale_columnwise_ = member(fresh, true);
}

bool WeightFaults::refreshes() const {
  const Fault* const fault = due(FaultKind::kStaleWeight);
  return fault == nullptr || stale_ == nullptr || fault->microbatch > 0;
}

std::shared_ptr<QuantizedTensor> WeightFaults::in_use(const std::shared_ptr<QuantizedTensor>& fresh,
                                                      const TensorMoment& moment) const {
  const Fault* const stale = due(FaultKind::kStaleWeight);
  if (stale != nullptr && stale_ != nullptr && moment.microbatch >= stale->microbatch) return stale_;
  if (!fresh->usage().columnwise) return fresh;
  if (due(FaultKind::kStaleColumnwise) != nullptr && stale_columnwise_ != nullptr)
    return joined(fresh, stale_columnwise_);
  if (due(FaultKind::kOverwriteColumnwise) != nullptr)
    return joined(fresh, overwritten_columnwise(*member(fresh, true), layer_));
  return fresh;
}

}  // namespace amaxscope::megatron
