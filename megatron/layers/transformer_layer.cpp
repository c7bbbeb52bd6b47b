#include "megatron/layers/transformer_layer.hpp"

#include "megatron/ops/elementwise.hpp"

namespace amaxscope::megatron {

TransformerLayer::TransformerLayer(const LayerContext& context, const TransformerLayerOptions& options)
    : name_(options.name),
      attention_(context, {.name = options.name + ".self_attention",
                           .number = options.number,
                           .hidden = options.hidden,
                           .heads = options.heads,
                           .sequence = options.sequence,
                           .norm = options.norm,
                           .initial_std = options.initial_std,
                           .output_initial_std = options.output_initial_std}),
      mlp_(context, {.name = options.name + ".mlp",
                     .number = options.number,
                     .hidden = options.hidden,
                     .ffn_hidden = options.ffn_hidden,
                     .norm = options.norm,
                     .initial_std = options.initial_std,
                     .output_initial_std = options.output_initial_std}) {}

Tensor TransformerLayer::forward(Tensor x, const TensorMoment& moment, Saved* saved) {
  Tensor middle = attention_.forward(x.view(), moment, saved != nullptr ? &saved->attention : nullptr);
  add(x.view(), middle);
  Tensor y = mlp_.forward(middle.view(), moment, saved != nullptr ? &saved->mlp : nullptr);
  add(middle.view(), y);
  if (saved != nullptr) {
    saved->input = std::move(x);
    saved->middle = std::move(middle);
  }
  return y;
}

Tensor TransformerLayer::backward(const TensorView& dy, const TensorMoment& moment, Saved& saved) {
  Tensor dmiddle = mlp_.backward(saved.middle.view(), dy, moment, saved.mlp);
  add(dy, dmiddle);
  Tensor dx = attention_.backward(saved.input.view(), dmiddle.view(), moment, saved.attention);
  add(dmiddle.view(), dx);
  saved.input.release();
  saved.middle.release();
  return dx;
}

void TransformerLayer::collect(std::vector<Parameter*>& parameters) {
  attention_.collect(parameters);
  mlp_.collect(parameters);
}

}  // namespace amaxscope::megatron
