#include "megatron/layers/norm.hpp"

namespace amaxscope::megatron {

namespace {

std::unique_ptr<Parameter> make_parameter(const LayerContext& context, const std::string& name,
                                          std::int64_t width, double value, bool sums_over_tp) {
  auto parameter = std::make_unique<Parameter>(name, Shape{width}, context.dtype, Layout::kReplicated);
  parameter->reduce_gradient_over_tp = sums_over_tp;
  initialize_constant(*parameter, value);
  return parameter;
}

}  // namespace

Norm::Norm(const LayerContext& context, NormOptions options, const std::string& name, std::int64_t width)
    : Norm(context, options, name, width, context.splits_sequence()) {}

Norm::Norm(const LayerContext& context, NormOptions options, const std::string& name, std::int64_t width,
           bool sums_over_tp)
    : options_(options) {
  const std::string separator = name.ends_with("layer_norm") ? "_" : ".";
  weight_ = make_parameter(context, name + separator + "weight", width, 1.0, sums_over_tp);
  if (options.kind == NormKind::kLayerNorm) {
    bias_ = make_parameter(context, name + separator + "bias", width, 0.0, sums_over_tp);
  }
}

Tensor Norm::forward(const TensorView& x, NormSaved* saved) const {
  Tensor y(x.dtype(), x.shape());
  NormSaved rows = norm_forward(options_.kind, x, weight_->compute.view(),
                                bias_ != nullptr ? bias_->compute.view() : TensorView{}, options_.epsilon, y);
  if (saved != nullptr) *saved = std::move(rows);
  return y;
}

Tensor Norm::backward(const TensorView& x, const TensorView& dy, const NormSaved& saved) {
  Tensor dx(x.dtype(), x.shape());
  norm_backward(options_.kind, x, weight_->compute.view(), saved, dy, dx, weight_->gradient,
                bias_ != nullptr ? bias_->gradient.mutable_view() : MutableTensorView{});
  return dx;
}

void Norm::collect(std::vector<Parameter*>& parameters) {
  parameters.push_back(weight_.get());
  if (bias_ != nullptr) parameters.push_back(bias_.get());
}

}  // namespace amaxscope::megatron
