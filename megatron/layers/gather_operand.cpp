#include "megatron/layers/gather_operand.hpp"

#include <vector>

#include "core/error.hpp"
#include "kernels/block_scale.hpp"
#include "runtime/quantizers/block_scaled_tensor.hpp"
#include "runtime/quantizers/debug_quantized_tensor.hpp"
#include "runtime/quantizers/kept_threads.hpp"

namespace amaxscope::megatron {

namespace {

struct Gather {
  Communicator& tp;
  CollectiveTag tag;

  [[nodiscard]] Shape whole(const Shape& shard) const { return {shard.rows() * tp.size(), shard.cols()}; }

  [[nodiscard]] Tensor rows(const TensorView& shard) const {
    Tensor all = Tensor::beside(shard, shard.dtype(), whole(shard.shape()));
    tp.all_gather(shard, all, tag);
    return all;
  }

  /// The bytes of all ranks, one after the other.
  [[nodiscard]] Tensor bytes(const TensorView& own) const {
    const auto count = static_cast<std::int64_t>(own.bytes());
    Tensor all = Tensor::beside(own, DType::kU8, {tp.size(), count});
    tp.all_gather(TensorView(own.data(), DType::kU8, Shape{count}, own.device(), own.stream()), all, tag);
    return all;
  }

  [[nodiscard]] BlockScaledCodes codes(const BlockScaledView& own) const {
    const Tensor codes = bytes(own.codes);
    const Tensor scales = bytes(own.scales);
    const auto part_of = [&](const Tensor& all, const TensorView& like, int rank) {
      const auto* first = static_cast<const std::byte*>(all.view().data());
      return TensorView(first + static_cast<std::size_t>(rank) * like.bytes(), like.dtype(), like.shape(),
                        like.device(), like.stream());
    };
    std::vector<BlockScaledView> parts;
    for (int rank = 0; rank < tp.size(); ++rank) {
      parts.push_back(own);
      parts.back().codes = part_of(codes, own.codes, rank);
      parts.back().scales = part_of(scales, own.scales, rank);
    }
    return stacked(parts);
  }

  [[nodiscard]] std::shared_ptr<QuantizedTensor> member(const BlockScaledTensor& shard, Usage wanted) const {
    BlockScaledCodes rowwise{.codes = {}, .scales = {}, .layout = shard.layout(Direction::kRowwise)};
    BlockScaledCodes columnwise{.codes = {}, .scales = {}, .layout = shard.layout(Direction::kColumnwise)};
    std::shared_ptr<WorkerPool> threads;
    const auto gathered = [&](Direction direction) {
      const BlockScaledView own = shard.blocks(direction);
      threads = WorkerPool::shared_of(own.codes);
      return codes(own);
    };
    if (wanted.columnwise) columnwise = gathered(Direction::kColumnwise);
    if (wanted.rowwise) rowwise = gathered(Direction::kRowwise);
    return with_threads_kept(std::make_shared<BlockScaledTensor>(whole(shard.shape()), shard.recipe(),
                                                                 std::move(rowwise), std::move(columnwise)),
                             std::move(threads));
  }

  [[nodiscard]] std::shared_ptr<QuantizedTensor> member(QuantizedTensor& shard, Usage wanted) const {
    if (auto* const float8 = dynamic_cast<Float8Tensor*>(&shard)) {
      if (!float8->usage().rowwise) float8->update_usage({.rowwise = true, .columnwise = false});
      auto all = std::make_shared<Float8Tensor>(whole(float8->shape()), float8->format(Direction::kRowwise),
                                                rows(float8->codes(Direction::kRowwise)), Tensor{},
                                                float8->scales());
      all->update_usage(wanted);
      return with_threads_kept(std::move(all),
                               WorkerPool::shared_of(float8->codes(Direction::kRowwise).view()));
    }
    if (const auto* const blocks = dynamic_cast<const BlockScaledTensor*>(&shard))
      return member(*blocks, wanted);
    const auto* const plain = dynamic_cast<const HighPrecisionTensor*>(&shard);
    AMAXSCOPE_CHECK(
        plain != nullptr, ErrorCode::kUsage,
        "{} of {}: codes of this kind of tensor cannot be gathered over tp; FP8, block-scaled codes and "
        "high precision can",
        tag.tensor, tag.layer);
    return with_threads_kept(std::make_shared<HighPrecisionTensor>(rows(plain->view())),
                             WorkerPool::shared_of(plain->view()));
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

bool slices_are_whole_blocks(RecipeKind recipe, std::int64_t rows) noexcept {
  const std::int64_t block = block_extent(recipe);
  return block == 1 || (rows > 0 && rows % block == 0);
}

Tensor gather_rows(const TensorView& shard, Communicator& tp, std::string_view layer,
                   std::string_view tensor) {
  return Gather{tp, {Traffic::kTrainer, "gather before quantizing", layer, tensor}}.rows(shard);
}

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
