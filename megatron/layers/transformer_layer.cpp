#include "megatron/layers/transformer_layer.hpp"

#include <tuple>

#include "megatron/ops/elementwise.hpp"

namespace amaxscope::megatron {

TransformerLayer::TransformerLayer(const LayerContext& context, const TransformerLayerOptions& options)
    : name_(options.name),
      recompute_(options.recompute),
      attention_(context, {.name = options.name + ".self_attention",
                           .number = options.number,
                           .hidden = options.hidden,
                           .heads = options.heads,
                           .sequence = options.sequence,
                           .norm = options.norm,
                           .initial_std = options.initial_std,
                           .output_initial_std = options.output_initial_std,
                           .rotary_positions = options.rotary_positions,
                           .qk_norm = options.qk_norm}) {
  const MlpOptions mlp{.name = options.name + ".mlp",
                       .number = options.number,
                       .hidden = options.hidden,
                       .ffn_hidden = options.ffn_hidden,
                       .kind = options.mlp,
                       .norm = options.norm,
                       .initial_std = options.initial_std,
                       .output_initial_std = options.output_initial_std};
  if (options.experts == 0) {
    mlp_ = std::make_unique<LayerNormMlp>(context, mlp);
  } else {
    experts_ = std::make_unique<MoeMlp>(context, MoeOptions{.mlp = mlp,
                                                            .norm_name = options.name + ".pre_mlp_layernorm",
                                                            .experts = options.experts,
                                                            .top_k = options.top_k});
  }
}

Tensor TransformerLayer::forward(Tensor x, const TensorMoment& moment, Saved* saved) {
  Tensor y = run(x.view(), moment, recompute_ ? nullptr : saved);
  if (saved != nullptr) saved->input = std::move(x);
  return y;
}

Tensor TransformerLayer::run(const TensorView& x, const TensorMoment& moment, Saved* saved) {
  Tensor middle = attention_.forward(x, moment, saved != nullptr ? &saved->attention : nullptr);
  add(x, middle);
  Tensor y = mlp_ != nullptr
                 ? mlp_->forward(middle.view(), moment, saved != nullptr ? &saved->mlp : nullptr)
                 : experts_->forward(middle.view(), moment, saved != nullptr ? &saved->experts : nullptr);
  add(middle.view(), y);
  if (saved != nullptr) saved->middle = std::move(middle);
  return y;
}

Tensor TransformerLayer::backward(const TensorView& dy, const TensorMoment& moment, Saved& saved) {
  if (recompute_) {
    const TensorMoment again{.phase = Phase::kRecompute, .microbatch = moment.microbatch};
    std::ignore = run(saved.input.view(), again, &saved);
  }
  Tensor dmiddle = mlp_ != nullptr ? mlp_->backward(saved.middle.view(), dy, moment, saved.mlp)
                                   : experts_->backward(saved.middle.view(), dy, moment, saved.experts);
  add(dy, dmiddle);
  Tensor dx = attention_.backward(saved.input.view(), dmiddle.view(), moment, saved.attention);
  add(dmiddle.view(), dx);
  saved.input.release();
  saved.middle.release();
  return dx;
}

void TransformerLayer::collect(std::vector<Parameter*>& parameters) {
  attention_.collect(parameters);
  mlp_ != nullptr ? mlp_->collect(parameters) : experts_->collect(parameters);
}

}  // namespace amaxscope::megatron
