#include "megatron/layers/self_attention.hpp"

#include "core/error.hpp"
#include "megatron/ops/heads.hpp"

namespace amaxscope::megatron {

namespace {

const AttentionOptions& checked(const LayerContext& context, const AttentionOptions& options) {
  AMAXSCOPE_CHECK(options.heads > 0 && options.heads % context.tp_size() == 0, ErrorCode::kUsage,
                  "layer {}: {} attention heads cannot be split over tp {}", options.name, options.heads,
                  context.tp_size());
  AMAXSCOPE_CHECK(options.hidden % options.heads == 0, ErrorCode::kUsage,
                  "layer {}: hidden {} is not a multiple of {} heads", options.name, options.hidden,
                  options.heads);
  AMAXSCOPE_CHECK(!options.rotary_positions || options.hidden / options.heads % 2 == 0, ErrorCode::kUsage,
                  "layer {}: heads of {} elements; rotary positions turn pairs, so it must be even",
                  options.name, options.hidden / options.heads);
  return options;
}

std::unique_ptr<Norm> make_head_norm(const LayerContext& context, const AttentionOptions& options,
                                     std::string_view name) {
  if (!options.qk_norm) return nullptr;
  // Every rank of tp has rows of its own heads only, with and without sequence parallelism.
  return std::make_unique<Norm>(context, NormOptions{NormKind::kRmsNorm, options.norm.epsilon},
                                fmt::format("{}.{}", options.name, name), options.hidden / options.heads,
                                context.tp_size() > 1);
}

void norm_heads(const AttentionShape& shape, const Norm& norm, HeadPart part, Tensor& qkv,
                SelfAttention::HeadNormSaved* saved) {
  Tensor rows = take_heads(shape, qkv, part);
  put_heads(shape, norm.forward(rows, saved != nullptr ? &saved->norm : nullptr), part, qkv);
  if (saved != nullptr) saved->rows = std::move(rows);
}

void norm_heads_backward(const AttentionShape& shape, Norm& norm, HeadPart part, Tensor& dqkv,
                         SelfAttention::HeadNormSaved& saved) {
  const Tensor dy = take_heads(shape, dqkv, part);
  put_heads(shape, norm.backward(saved.rows, dy, saved.norm), part, dqkv);
  saved = {};
}

}  // namespace

SelfAttention::SelfAttention(const LayerContext& context, const AttentionOptions& options)
    : sequence_(options.sequence),
      local_heads_(checked(context, options).heads / context.tp_size()),
      head_dim_(options.hidden / options.heads),
      rotary_positions_(options.rotary_positions),
      qkv_(context, options.norm,
           {.name = options.name + ".linear_qkv",
            .number = options.number,
            .inputs = options.hidden,
            .outputs = 3 * options.hidden,
            .bias = true,
            .initial_std = options.initial_std}),
      query_norm_(make_head_norm(context, options, "q_layernorm")),
      key_norm_(make_head_norm(context, options, "k_layernorm")),
      proj_(context, {.name = options.name + ".linear_proj",
                      .number = options.number,
                      .inputs = options.hidden,
                      .outputs = options.hidden,
                      .bias = true,
                      .initial_std = options.output_initial_std}) {}

AttentionShape SelfAttention::local_shape(std::int64_t tokens) const {
  AMAXSCOPE_CHECK(tokens % sequence_ == 0, ErrorCode::kUsage, "{} tokens are no whole sequences of {}",
                  tokens, sequence_);
  return {.sequence = sequence_, .batch = tokens / sequence_, .heads = local_heads_, .head_dim = head_dim_};
}

void SelfAttention::prepare_heads(const AttentionShape& shape, Tensor& qkv, Saved* saved) const {
  if (query_norm_ != nullptr) {
    norm_heads(shape, *query_norm_, HeadPart::kQuery, qkv, saved != nullptr ? &saved->query : nullptr);
    norm_heads(shape, *key_norm_, HeadPart::kKey, qkv, saved != nullptr ? &saved->key : nullptr);
  }
  if (rotary_positions_) rotate_positions(shape, qkv);
}

void SelfAttention::prepare_heads_backward(const AttentionShape& shape, Tensor& dqkv, Saved& saved) {
  if (rotary_positions_) rotate_positions_back(shape, dqkv);
  if (query_norm_ != nullptr) {
    norm_heads_backward(shape, *query_norm_, HeadPart::kQuery, dqkv, saved.query);
    norm_heads_backward(shape, *key_norm_, HeadPart::kKey, dqkv, saved.key);
  }
}

Tensor SelfAttention::forward(const TensorView& x, const TensorMoment& moment, Saved* saved) {
  Tensor qkv = qkv_.forward(x, moment, saved != nullptr ? &saved->qkv : nullptr);
  prepare_heads(local_shape(qkv.rows()), qkv, saved);
  Tensor context(qkv.dtype(), {qkv.rows(), local_heads_ * head_dim_});
  Tensor probabilities = attention_forward(local_shape(qkv.rows()), qkv.view(), context);
  if (saved != nullptr) {
    saved->attention_input = std::move(qkv);
    saved->probabilities = std::move(probabilities);
  }
  return proj_.forward(std::move(context), moment, saved != nullptr ? &saved->proj : nullptr);
}

Tensor SelfAttention::backward(const TensorView& x, const TensorView& dy, const TensorMoment& moment,
                               Saved& saved) {
  const Tensor dcontext = proj_.backward(dy, moment, saved.proj);
  Tensor dqkv(saved.attention_input.dtype(), saved.attention_input.shape());
  const AttentionShape shape = local_shape(dqkv.rows());
  attention_backward(shape, saved.attention_input.view(), saved.probabilities.view(), dcontext, dqkv);
  prepare_heads_backward(shape, dqkv, saved);
  saved.attention_input.release();
  saved.probabilities.release();
  return qkv_.backward(x, dqkv.view(), moment, saved.qkv);
}

void SelfAttention::collect(std::vector<Parameter*>& parameters) {
  qkv_.collect(parameters);
  if (query_norm_ != nullptr) {
    query_norm_->collect(parameters);
    key_norm_->collect(parameters);
  }
  proj_.collect(parameters);
}

}  // namespace amaxscope::megatron
