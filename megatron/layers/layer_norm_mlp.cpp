#include "megatron/layers/layer_norm_mlp.hpp"

#include "megatron/ops/activation.hpp"

namespace amaxscope::megatron {

LayerNormMlp::LayerNormMlp(const LayerContext& context, const MlpOptions& options)
    : fc1_(context, options.norm,
           {.name = options.name + ".linear_fc1",
            .number = options.number,
            .inputs = options.hidden,
            .outputs = options.ffn_hidden,
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
  Tensor activated(pre_activation.dtype(), pre_activation.shape());
  gelu_forward(pre_activation.view(), activated);
  if (saved != nullptr) saved->pre_activation = std::move(pre_activation);
  return fc2_.forward(std::move(activated), moment, saved != nullptr ? &saved->fc2 : nullptr);
}

Tensor LayerNormMlp::backward(const TensorView& x, const TensorView& dy, const TensorMoment& moment,
                              Saved& saved) {
  const Tensor dactivated = fc2_.backward(dy, moment, saved.fc2);
  Tensor dpre_activation(dactivated.dtype(), dactivated.shape());
  gelu_backward(saved.pre_activation.view(), dactivated, dpre_activation);
  saved.pre_activation.release();
  return fc1_.backward(x, dpre_activation.view(), moment, saved.fc1);
}

void LayerNormMlp::collect(std::vector<Parameter*>& parameters) {
  fc1_.collect(parameters);
  fc2_.collect(parameters);
}

}  // namespace amaxscope::megatron
