#include "megatron/layers/layer_norm_linear.hpp"

namespace amaxscope::megatron {

LayerNormLinear::LayerNormLinear(const LayerContext& context, NormOptions norm, const LinearOptions& linear)
    : norm_(context, norm, linear.name + ".layer_norm", linear.inputs), linear_(context, linear) {}

Tensor LayerNormLinear::forward(const TensorView& x, const TensorMoment& moment, Saved* saved) {
  Tensor normed = norm_.forward(x, saved != nullptr ? &saved->norm : nullptr);
  return linear_.forward(std::move(normed), moment, saved != nullptr ? &saved->linear : nullptr);
}

Tensor LayerNormLinear::backward(const TensorView& x, const TensorView& dy, const TensorMoment& moment,
                                 Saved& saved) {
  const Tensor dnormed = linear_.backward(dy, moment, saved.linear);
  Tensor dx = norm_.backward(x, dnormed, saved.norm);
  saved.norm = {};
  return dx;
}

void LayerNormLinear::collect(std::vector<Parameter*>& parameters) {
  norm_.collect(parameters);
  linear_.collect(parameters);
}

}  // namespace amaxscope::megatron
