#include "megatron/layers/moe_mlp.hpp"

#include <cstring>

#include "core/error.hpp"

namespace amaxscope::megatron {

namespace {

LayerContext without_sequence_parallelism(LayerContext context) {
  context.sequence_parallel = false;
  return context;
}

const MoeOptions& checked(const MoeOptions& options) {
  AMAXSCOPE_CHECK(options.top_k >= 1 && options.top_k <= options.experts, ErrorCode::kUsage,
                  "layer {}: top_k {} of {} experts; allowed is 1 to all of them", options.mlp.name,
                  options.top_k, options.experts);
  return options;
}

}  // namespace

MoeMlp::MoeMlp(const LayerContext& context, const MoeOptions& options)
    : context_(context),
      name_(checked(options).mlp.name),
      kind_(options.mlp.kind),
      top_k_(options.top_k),
      norm_(context, options.mlp.norm, options.norm_name, options.mlp.hidden),
      router_(name_ + ".router.weight", {options.experts, options.mlp.hidden}, context.dtype,
              Layout::kReplicated),
      fc1_(without_sequence_parallelism(context), ParallelMode::kColumn,
           {.name = name_ + ".experts.linear_fc1",
            .number = options.mlp.number,
            .inputs = options.mlp.hidden,
            .outputs = fc1_outputs(options.mlp.kind, options.mlp.ffn_hidden),
            .bias = true,
            .initial_std = options.mlp.initial_std},
           options.experts),
      fc2_(without_sequence_parallelism(context), ParallelMode::kRow,
           {.name = name_ + ".experts.linear_fc2",
            .number = options.mlp.number,
            .inputs = options.mlp.ffn_hidden,
            .outputs = options.mlp.hidden,
            .bias = true,
            .initial_std = options.mlp.output_initial_std},
           options.experts) {
  initialize_normal(router_, context.seed, router_.master.shape(), 0, 0, options.mlp.initial_std);
}

Tensor MoeMlp::all_rows(Tensor own, std::string_view what) const {
  if (!context_.splits_sequence()) return own;
  Tensor all(own.dtype(), {own.rows() * context_.tp_size(), own.cols()});
  context_.tp->all_gather(own, all, {Traffic::kTrainer, "gather tokens", name_, what});
  return all;
}

Tensor MoeMlp::own_rows(Tensor all) const {
  if (!context_.splits_sequence()) return all;
  Tensor own(all.dtype(), {all.rows() / context_.tp_size(), all.cols()});
  const auto* const data = static_cast<const std::byte*>(std::as_const(all).view().data());
  if (own.bytes() != 0)
    std::memcpy(own.mutable_view().data(), data + static_cast<std::size_t>(context_.tp_rank()) * own.bytes(),
                own.bytes());
  return own;
}

void MoeMlp::observe(const Routing& routing, const TensorMoment& moment) const {
  if (context_.session == nullptr) return;
  context_.session->observe(name_ + ".router", "router_logits", routing.logits, Layout::kReplicated, moment);
  Tensor load(DType::kF32, {routing.experts()});
  for (std::size_t expert = 0; expert < routing.rows.size(); ++expert)
    load.values<float>()[expert] = static_cast<float>(routing.rows[expert]);
  context_.session->observe(name_ + ".router.load", "router_load", load, Layout::kReplicated, moment);
}

Tensor MoeMlp::forward(const TensorView& x, const TensorMoment& moment, Saved* saved) {
  Tensor tokens = all_rows(norm_.forward(x, saved != nullptr ? &saved->norm : nullptr), "activation");
  Routing routing = route(tokens.view(), router_.compute.view(), top_k_);
  observe(routing, moment);
  Tensor pre_activation = fc1_.forward(dispatch(routing, tokens.view()), routing.rows, moment,
                                       saved != nullptr ? &saved->fc1 : nullptr);
  Tensor expert_output = fc2_.forward(activate(kind_, pre_activation), routing.rows, moment,
                                      saved != nullptr ? &saved->fc2 : nullptr);
  Tensor y = own_rows(combine(routing, expert_output.view()));
  if (saved != nullptr) {
    saved->tokens = std::move(tokens);
    saved->routing = std::move(routing);
    saved->pre_activation = std::move(pre_activation);
    saved->expert_output = std::move(expert_output);
  }
  return y;
}

Tensor MoeMlp::backward(const TensorView& x, const TensorView& dy, const TensorMoment& moment, Saved& saved) {
  const Routing& routing = saved.routing;
  Tensor all_dy;
  TensorView gradient = dy;
  if (context_.splits_sequence()) {
    all_dy = Tensor(dy.dtype(), {dy.rows() * context_.tp_size(), dy.cols()});
    context_.tp->all_gather(dy, all_dy, {Traffic::kTrainer, "gather tokens", name_, "gradient"});
    gradient = all_dy.view();
  }
  const CombineGradients combined = combine_backward(routing, saved.expert_output.view(), gradient);
  const Tensor dactivated = fc2_.backward(combined.dx, routing.rows, moment, saved.fc2);
  const Tensor dpre_activation = activate_backward(kind_, saved.pre_activation, dactivated);
  const Tensor drows = fc1_.backward(dpre_activation, routing.rows, moment, saved.fc1);
  const std::vector<double> through_router = route_backward(
      routing, saved.tokens.view(), router_.compute.view(), combined.dprobabilities, router_.gradient);
  const Tensor dnormed = own_rows(dispatch_backward(routing, drows, through_router));
  Tensor dx = norm_.backward(x, dnormed, saved.norm);
  saved = {};
  return dx;
}

void MoeMlp::collect(std::vector<Parameter*>& parameters) {
  norm_.collect(parameters);
  parameters.push_back(&router_);
  fc1_.collect(parameters);
  fc2_.collect(parameters);
}

}  // namespace amaxscope::megatron
