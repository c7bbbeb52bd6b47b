#include "megatron/layers/layer_norm_mlp.hpp"

#include "megatron/ops/activation.hpp"

namespace amaxscope::megatron {

Tensor activate(MlpKind kind, const Tensor& pre_activation) {
  const bool gated = kind == MlpKind::kSwiglu;
  Tensor y(pre_activation.dtype(), {pre_activation.rows(), pre_activation.cols() / (gated ? 2 : 1)});
  gated ? swiglu_forward(pre_activation.view(), y) : gelu_forward(pre_activation.view(), y);
  return y;
}

Tensor activate_backward(MlpKind kind, const Tensor& pre_activation, const Tensor& dy) {
  Tensor dx(pre_activation.dtype(), pre_activation.shape());
  kind == MlpKind::kSwiglu ? swiglu_backward(pre_activation.view(), dy, dx)
                           : gelu_backward(pre_activation.view(), dy, dx);
  return dx;
}

LayerNormMlp::LayerNormMlp(const LayerContext& context, const MlpOptions& options)
    : kind_(options.kind),
      fc1_(context, options.norm,
           {.name = options.name + ".linear_fc1",
            .number = options.number,
            .inputs = options.hidden,
            .outputs = fc1_outputs(options.kind, options.ffn_hidden),
            .bias = true,
            .initial_std = options.initial_std}),
      fc2_(context, {.name = options.name + ".linear_fc2",
                     .number = options.number,
                     .inputs = options.ffn_hidden,
                     .outputs = options.hidden,
                     .bias = true,
                     .initial_std = options.output_initial_std}) {}

Tensor LayerNormMlp::forward(const TensorView& x, const TensorMoment& moment, Saved* saved) {
  Tensor pre_activation = fc1_.forward(x, moment, saved != nullptr ? &saved->fc1 : nullptr);
  Tensor activated = activate(kind_, pre_activation);
  if (saved != nullptr) saved->pre_activation = std::move(pre_activation);
  return fc2_.forward(std::move(activated), moment, saved != nullptr ? &saved->fc2 : nullptr);
}

Tensor LayerNormMlp::backward(const TensorView& x, const TensorView& dy, const TensorMoment& moment,
                              Saved& saved) {
  const Tensor dactivated = fc2_.backward(dy, moment, saved.fc2);
  const Tensor dpre_activation = activate_backward(kind_, saved.pre_activation, dactivated);
  saved.pre_activation.release();
  return fc1_.backward(x, dpre_activation.view(), moment, saved.fc1);
}

void LayerNormMlp::collect(std::vector<Parameter*>& parameters) {
  fc1_.collect(parameters);
  fc2_.collect(parameters);
}

}  // namespace amaxscope::megatron
