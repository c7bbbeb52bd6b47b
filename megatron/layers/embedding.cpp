#include "megatron/layers/embedding.hpp"

#include "core/error.hpp"
#include "megatron/ops/elementwise.hpp"
#include "megatron/ops/loss.hpp"

namespace amaxscope::megatron {

namespace {

template <class Byte>
Byte* at_row(Byte* data, DType dtype, std::int64_t row, std::int64_t width) {
  return data + size_bytes(dtype, row * width);
}

TensorView rows_of(const TensorView& matrix, std::int64_t first, Shape shape) {
  const auto* const data = static_cast<const std::byte*>(matrix.data());
  return {at_row(data, matrix.dtype(), first, matrix.cols()), matrix.dtype(), shape};
}

MutableTensorView rows_of(const MutableTensorView& matrix, std::int64_t first, Shape shape) {
  auto* const data = static_cast<std::byte*>(matrix.data());
  return {at_row(data, matrix.dtype(), first, matrix.cols()), matrix.dtype(), shape};
}

}  // namespace

Parameter make_embedding_table(const LayerContext& context, std::int64_t vocabulary, std::int64_t hidden,
                               double initial_std) {
  const std::int64_t rows = vocabulary / context.tp_size();
  Parameter table("embedding.word_embeddings.weight", {rows, hidden}, context.dtype,
                  context.tp_size() > 1 ? Layout::kShard0 : Layout::kReplicated);
  initialize_normal(table, context.seed, {vocabulary, hidden}, context.tp_rank() * rows, 0, initial_std);
  return table;
}

Embedding::Embedding(const LayerContext& context, const EmbeddingOptions& options)
    : context_(context), options_(options) {
  const std::int64_t ranks = context.tp_size();
  AMAXSCOPE_CHECK(options.vocabulary % ranks == 0, ErrorCode::kUsage,
                  "vocabulary {} cannot be split over tp {}", options.vocabulary, ranks);
  AMAXSCOPE_CHECK(!context.splits_sequence() || options.sequence % ranks == 0, ErrorCode::kUsage,
                  "sequence {} cannot be split over tp {} (sequence parallelism)", options.sequence, ranks);
  table_ = make_embedding_table(context, options.vocabulary, options.hidden, options.initial_std);
  if (!options.learned_positions) return;
  positions_ = Parameter("embedding.position_embeddings.weight", {options.sequence, options.hidden},
                         context.dtype, Layout::kReplicated);
  positions_.reduce_gradient_over_tp = context.splits_sequence();
  initialize_normal(positions_, context.seed, {options.sequence, options.hidden}, 0, 0, options.initial_std);
}

Embedding::Positions Embedding::local_positions(std::int64_t tokens) const {
  AMAXSCOPE_CHECK(tokens % options_.sequence == 0, ErrorCode::kUsage,
                  "{} tokens are no whole sequences of {}", tokens, options_.sequence);
  const std::int64_t parts = context_.splits_sequence() ? context_.tp_size() : 1;
  const std::int64_t count = options_.sequence / parts;
  return {.first = parts == 1 ? 0 : context_.tp_rank() * count,
          .count = count,
          .batch = tokens / options_.sequence};
}

Tensor Embedding::forward(std::span<const std::int32_t> ids) const {
  const Positions local = local_positions(static_cast<std::int64_t>(ids.size()));
  Tensor y(context_.dtype, {local.count * local.batch, options_.hidden});
  embedding_forward(table_.compute, ids, context_.tp, context_.splits_sequence(), y);
  if (!options_.learned_positions) return y;
  for (std::int64_t s = 0; s < local.count; ++s) {
    add_bias(rows_of(positions_.compute.view(), local.first + s, {options_.hidden}),
             rows_of(y.mutable_view(), s * local.batch, {local.batch, options_.hidden}));
  }
  return y;
}

void Embedding::backward(const TensorView& dy, std::span<const std::int32_t> ids,
                         const MutableTensorView& table_gradient) {
  const Positions local = local_positions(static_cast<std::int64_t>(ids.size()));
  for (std::int64_t s = 0; options_.learned_positions && s < local.count; ++s) {
    bias_gradient(rows_of(dy, s * local.batch, {local.batch, options_.hidden}),
                  rows_of(positions_.gradient.mutable_view(), local.first + s, {options_.hidden}));
  }
  embedding_backward(dy, ids, context_.tp, context_.splits_sequence(), table_gradient);
}

void Embedding::collect(std::vector<Parameter*>& parameters) {
  parameters.push_back(&table_);
  if (options_.learned_positions) parameters.push_back(&positions_);
}

}  // namespace amaxscope::megatron
