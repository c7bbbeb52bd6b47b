#include "megatron/layers/gather_operand.hpp"

#include "core/error.hpp"
#include "runtime/quantizers/debug_quantized_tensor.hpp"

namespace amaxscope::megatron {

namespace {

struct Gather {
  Communicator& tp;
  CollectiveTag tag;

  [[nodiscard]] Shape whole(const Shape& shard) const { return {shard.rows() * tp.size(), shard.cols()}; }

  [[nodiscard]] Tensor rows(const TensorView& shard) const {
    Tensor all(shard.dtype(), whole(shard.shape()));
    tp.all_gather(shard, all, tag);
    return all;
  }

  [[nodiscard]] std::shared_ptr<QuantizedTensor> member(QuantizedTensor& shard, Usage wanted) const {
    if (auto* const float8 = dynamic_cast<Float8Tensor*>(&shard)) {
      if (!float8->usage().rowwise) float8->update_usage({.rowwise = true, .columnwise = false});
      auto all = std::make_shared<Float8Tensor>(whole(float8->shape()), float8->format(Direction::kRowwise),
                                                rows(float8->codes(Direction::kRowwise)), Tensor{},
                                                float8->scale(), float8->scale_inv());
      all->update_usage(wanted);
      return all;
    }
    const auto* const plain = dynamic_cast<const HighPrecisionTensor*>(&shard);
    AMAXSCOPE_CHECK(
        plain != nullptr, ErrorCode::kUsage,
        "{} of {}: codes of this kind of tensor cannot be gathered over tp; per-tensor FP8 and high "
        "precision can",
        tag.tensor, tag.layer);
    return std::make_shared<HighPrecisionTensor>(rows(plain->view()));
  }
};

/// One object, or two that borrow the same memory.
bool same_values(const std::shared_ptr<QuantizedTensor>& a, const std::shared_ptr<QuantizedTensor>& b) {
  if (a == b) return true;
  const auto* const first = dynamic_cast<const HighPrecisionTensor*>(a.get());
  const auto* const second = dynamic_cast<const HighPrecisionTensor*>(b.get());
  return first != nullptr && second != nullptr && first->view().data() == second->view().data() &&
         first->view().dtype() == second->view().dtype();
}

}  // namespace

std::shared_ptr<QuantizedTensor> gather_operand(const std::shared_ptr<QuantizedTensor>& shard, Usage wanted,
                                                Communicator& tp, std::string_view layer,
                                                std::string_view tensor) {
  const Gather gather{tp, {Traffic::kTrainer, "gather operand", layer, tensor}};
  const auto* const pair = dynamic_cast<const DebugQuantizedTensor*>(shard.get());
  if (pair == nullptr) return gather.member(*shard, wanted);
  const std::shared_ptr<QuantizedTensor> rowwise = wanted.rowwise ? pair->get_tensor(false) : nullptr;
  const std::shared_ptr<QuantizedTensor> columnwise = wanted.columnwise ? pair->get_tensor(true) : nullptr;
  if (rowwise != nullptr && columnwise != nullptr && same_values(rowwise, columnwise)) {
    const std::shared_ptr<QuantizedTensor> both = gather.member(*rowwise, wanted);
    return std::make_shared<DebugQuantizedTensor>(both->shape(), both, both);
  }
  std::shared_ptr<QuantizedTensor> all_columnwise;
  std::shared_ptr<QuantizedTensor> all_rowwise;
  if (columnwise != nullptr)
    all_columnwise = gather.member(*columnwise, {.rowwise = false, .columnwise = true});
  if (rowwise != nullptr) all_rowwise = gather.member(*rowwise, {.rowwise = true, .columnwise = false});
  return std::make_shared<DebugQuantizedTensor>(gather.whole(shard->shape()), all_rowwise, all_columnwise);
}

}  // namespace amaxscope::megatron
