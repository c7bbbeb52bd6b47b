#include "megatron/layers/self_attention.hpp"

#include "core/error.hpp"

namespace amaxscope::megatron {

namespace {

const AttentionOptions& checked(const LayerContext& context, const AttentionOptions& options) {
  AMAXSCOPE_CHECK(options.heads > 0 && options.heads % context.tp_size() == 0, ErrorCode::kUsage,
                  "layer {}: {} attention heads cannot be split over tp {}", options.name, options.heads,
                  context.tp_size());
  AMAXSCOPE_CHECK(options.hidden % options.heads == 0, ErrorCode::kUsage,
                  "layer {}: hidden {} is not a multiple of {} heads", options.name, options.hidden,
                  options.heads);
  return options;
}

}  // namespace

SelfAttention::SelfAttention(const LayerContext& context, const AttentionOptions& options)
    : sequence_(options.sequence),
      local_heads_(checked(context, options).heads / context.tp_size()),
      head_dim_(options.hidden / options.heads),
      qkv_(context, options.norm,
           {.name = options.name + ".linear_qkv",
            .number = options.number,
            .inputs = options.hidden,
            .outputs = 3 * options.hidden,
            .bias = true,
            .initial_std = options.initial_std}),
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

Tensor SelfAttention::forward(const TensorView& x, const TensorMoment& moment, Saved* saved) {
  Tensor qkv = qkv_.forward(x, moment, saved != nullptr ? &saved->qkv : nullptr);
  Tensor context(qkv.dtype(), {qkv.rows(), local_heads_ * head_dim_});
  Tensor probabilities = attention_forward(local_shape(qkv.rows()), qkv.view(), context);
  if (saved != nullptr) {
    saved->qkv_output = std::move(qkv);
    saved->probabilities = std::move(probabilities);
  }
  return proj_.forward(std::move(context), moment, saved != nullptr ? &saved->proj : nullptr);
}

Tensor SelfAttention::backward(const TensorView& x, const TensorView& dy, const TensorMoment& moment,
                               Saved& saved) {
  const Tensor dcontext = proj_.backward(dy, moment, saved.proj);
  Tensor dqkv(saved.qkv_output.dtype(), saved.qkv_output.shape());
  attention_backward(local_shape(dqkv.rows()), saved.qkv_output.view(), saved.probabilities.view(), dcontext,
                     dqkv);
  saved.qkv_output.release();
  saved.probabilities.release();
  return qkv_.backward(x, dqkv.view(), moment, saved.qkv);
}

void SelfAttention::collect(std::vector<Parameter*>& parameters) {
  qkv_.collect(parameters);
  proj_.collect(parameters);
}

}  // namespace amaxscope::megatron
