#include "megatron/gpt.hpp"

#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "megatron/counter_hash.hpp"
#include "megatron/faults.hpp"
#include "megatron/ops/elementwise.hpp"
#include "megatron/ops/loss.hpp"

namespace amaxscope::megatron {

namespace {

constexpr std::string_view kOutputLayer = "output_layer";

std::string layer_name(std::int64_t number) { return fmt::format("decoder.layers.{}", number); }

GptOptions checked(const LayerContext& context, GptOptions options, const PipelineStage& stage) {
  if (options.ffn_hidden == 0) options.ffn_hidden = 4 * options.hidden;
  const std::int64_t ranks = context.tp_size();
  struct Size {
    std::string_view name;
    std::int64_t value;
    bool split;
  };
  for (const Size& size : {Size{"vocabulary", options.vocabulary, true}, Size{"heads", options.heads, true},
                           Size{"hidden", options.hidden, true}, Size{"ffn_hidden", options.ffn_hidden, true},
                           Size{"sequence", options.sequence, context.splits_sequence()},
                           Size{"layers", options.layers, false}}) {
    AMAXSCOPE_CHECK(size.value > 0, ErrorCode::kUsage, "{} is {}, at least 1 is needed", size.name,
                    size.value);
    AMAXSCOPE_CHECK(!size.split || size.value % ranks == 0, ErrorCode::kUsage,
                    "{} {} is not divisible by tensor parallelism (tp) {}", size.name, size.value, ranks);
  }
  AMAXSCOPE_CHECK(options.layers % stage.count == 0, ErrorCode::kUsage,
                  "layers {} is not divisible by pipeline parallelism (pp) {}: every stage has as many",
                  options.layers, stage.count);
  AMAXSCOPE_CHECK(options.hidden % options.heads == 0, ErrorCode::kUsage,
                  "hidden {} is not divisible by heads {}", options.hidden, options.heads);
  AMAXSCOPE_CHECK(options.experts >= 0, ErrorCode::kUsage, "experts is {}; 0 stands for none",
                  options.experts);
  return options;
}

/// Numbers of the layers of a stage: [first, last].
std::pair<std::int64_t, std::int64_t> layers_of(const GptOptions& options, const PipelineStage& stage) {
  const std::int64_t each = options.layers / stage.count;
  return {stage.index * each + 1, (stage.index + 1) * each};
}

std::vector<std::string> mlp_gemms(const GptOptions& options) {
  if (options.experts == 0) return {"mlp.linear_fc1", "mlp.linear_fc2"};
  std::vector<std::string> names;
  for (const std::string_view group : {"mlp.experts.linear_fc1", "mlp.experts.linear_fc2"}) {
    for (int expert = 0; expert < options.experts; ++expert) names.push_back(expert_gemm_name(group, expert));
  }
  return names;
}

}  // namespace

Gpt::Gpt(const LayerContext& context, const GptOptions& options, const PipelineStage& stage)
    : context_(context), options_(checked(context, options, stage)), stage_(stage) {
  context_.sequence = options_.sequence;
  context_.perturb = options_.perturb;
  if (context.faults != nullptr) context.faults->require_layers(layer_names(options_));
  if (stage_.is_first()) {
    embedding_ = std::make_unique<Embedding>(
        context_, EmbeddingOptions{.vocabulary = options_.vocabulary,
                                   .sequence = options_.sequence,
                                   .hidden = options_.hidden,
                                   .initial_std = options_.initial_std,
                                   .learned_positions = !options_.rotary_positions});
    embedding_->collect(parameters_);
  }
  const double output_std = options_.initial_std / std::sqrt(2.0 * static_cast<double>(options_.layers));
  const auto [first, last] = layers_of(options_, stage_);
  for (std::int64_t number = first; number <= last; ++number) {
    layers_.push_back(std::make_unique<TransformerLayer>(
        context_, TransformerLayerOptions{.name = layer_name(number),
                                          .number = static_cast<int>(number),
                                          .hidden = options_.hidden,
                                          .heads = options_.heads,
                                          .sequence = options_.sequence,
                                          .ffn_hidden = options_.ffn_hidden,
                                          .mlp = options_.mlp,
                                          .norm = options_.norm,
                                          .initial_std = options_.initial_std,
                                          .output_initial_std = output_std,
                                          .rotary_positions = options_.rotary_positions,
                                          .qk_norm = options_.qk_norm,
                                          .recompute = options_.recompute,
                                          .experts = options_.experts,
                                          .top_k = options_.top_k}));
    layers_.back()->collect(parameters_);
  }
  if (stage_.is_last()) build_output();
}

void Gpt::build_output() {
  final_norm_ = std::make_unique<Norm>(context_, options_.norm, "decoder.final_layernorm", options_.hidden);
  final_norm_->collect(parameters_);
  Parameter* tied = nullptr;
  if (stage_.is_first()) {
    tied = &embedding_->table();
    lookup_gradient_ = Tensor(tied->gradient.dtype(), tied->gradient.shape());
  } else {
    output_weight_ = std::make_unique<Parameter>(
        make_embedding_table(context_, options_.vocabulary, options_.hidden, options_.initial_std));
    output_weight_->name = fmt::format("{}.weight", kOutputLayer);
    output_weight_->copy_of_first_stage = true;
    parameters_.push_back(output_weight_.get());
    tied = output_weight_.get();
  }
  LayerContext output_context = context_;
  output_context.recipe = RecipeKind::kNone;
  output_layer_ = std::make_unique<ColumnParallelLinear>(output_context,
                                                         LinearOptions{.name = std::string(kOutputLayer),
                                                                       .number = std::nullopt,
                                                                       .inputs = options_.hidden,
                                                                       .outputs = options_.vocabulary,
                                                                       .bias = false},
                                                         tied);
}

std::vector<std::string> Gpt::layer_names(const GptOptions& options, const PipelineStage& stage) {
  std::vector<std::string> gemms = {"self_attention.linear_qkv", "self_attention.linear_proj"};
  for (std::string& gemm : mlp_gemms(options)) gemms.push_back(std::move(gemm));
  std::vector<std::string> names;
  const auto [first, last] = layers_of(options, stage);
  for (std::int64_t number = first; number <= last; ++number) {
    for (const std::string& gemm : gemms) names.push_back(fmt::format("{}.{}", layer_name(number), gemm));
  }
  if (stage.is_last()) names.emplace_back(kOutputLayer);
  return names;
}

void Gpt::observe(std::string_view name, std::string_view kind, const TensorView& view, Layout layout,
                  const TensorMoment& moment) const {
  if (context_.session != nullptr) context_.session->observe(name, kind, view, layout, moment);
}

double Gpt::forward(const Batch& batch, double gradient_scale, const TensorMoment& moment, Saved* saved) {
  double loss = 0;
  static_cast<void>(forward_stage(batch, {}, gradient_scale, moment, saved, loss));
  return loss;
}

void Gpt::backward(int microbatch, Saved& saved) { static_cast<void>(backward_stage(microbatch, {}, saved)); }

Tensor Gpt::forward_stage(const Batch& batch, Tensor received, double gradient_scale,
                          const TensorMoment& moment, Saved* saved, double& loss) {
  AMAXSCOPE_CHECK(received.defined() != stage_.is_first(), ErrorCode::kUsage,
                  "stage {} of {}: {} activations of a previous stage were handed in", stage_.index,
                  stage_.count, received.defined() ? "the" : "no");
  const Layout residual_layout = context_.splits_sequence() ? Layout::kShard0 : Layout::kReplicated;
  Tensor x = stage_.is_first() ? embedding_->forward(batch.inputs) : std::move(received);
  if (saved != nullptr) {
    if (stage_.is_first()) saved->inputs = batch.inputs;
    saved->layers.resize(layers_.size());
  }
  // A sum of K products in fp32 errs by some sqrt(K) roundings, and the result is rounded to the compute
  // dtype.
  const double size =
      std::max(unit_roundoff(context_.dtype), std::sqrt(static_cast<double>(options_.hidden)) * 0x1p-24);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    if (options_.perturb != 0) perturb(hash_words(options_.perturb, i), size, x.mutable_view());
    x = layers_[i]->forward(std::move(x), moment, saved != nullptr ? &saved->layers[i] : nullptr);
    observe(layers_[i]->name(), "residual", x.view(), residual_layout, moment);
  }
  if (!stage_.is_last()) return x;
  Tensor normed = final_norm_->forward(x.view(), saved != nullptr ? &saved->final_norm : nullptr);
  const Tensor logits =
      output_layer_->forward(std::move(normed), moment, saved != nullptr ? &saved->output_layer : nullptr);
  observe(kOutputLayer, "logits", logits, context_.tp_size() > 1 ? Layout::kShard1 : Layout::kReplicated,
          moment);
  LossResult result = cross_entropy(logits, batch.targets, gradient_scale, context_.tp);
  if (saved != nullptr) {
    saved->final_input = std::move(x);
    saved->dlogits = std::move(result.dlogits);
  }
  loss += result.mean_loss;
  return {};
}

Tensor Gpt::backward_stage(int microbatch, Tensor received, Saved& saved) {
  AMAXSCOPE_CHECK(received.defined() != stage_.is_last(), ErrorCode::kUsage,
                  "stage {} of {}: {} gradient of a next stage was handed in", stage_.index, stage_.count,
                  received.defined() ? "the" : "no");
  const TensorMoment moment{.phase = Phase::kBackward, .microbatch = microbatch};
  Tensor dx = std::move(received);
  if (stage_.is_last()) {
    const Tensor dnormed = output_layer_->backward(saved.dlogits.view(), moment, saved.output_layer);
    dx = final_norm_->backward(saved.final_input.view(), dnormed, saved.final_norm);
  }
  for (std::size_t i = layers_.size(); i-- > 0;)
    dx = layers_[i]->backward(dx.view(), moment, saved.layers[i]);
  saved.final_input.release();
  saved.final_norm = {};
  saved.dlogits.release();
  if (!stage_.is_first()) return dx;
  embedding_->backward(dx.view(), saved.inputs,
                       lookup_gradient_.defined() ? lookup_gradient_ : embedding_->table().gradient);
  return {};
}

Shape Gpt::hidden_shape(const Batch& batch) const {
  const auto tokens = static_cast<std::int64_t>(batch.inputs.size());
  return {context_.splits_sequence() ? tokens / context_.tp_size() : tokens, options_.hidden};
}

void Gpt::complete_gradients() {
  if (!lookup_gradient_.defined()) return;
  Parameter& table = embedding_->table();
  add(lookup_gradient_, table.gradient);
  lookup_gradient_ = Tensor(table.gradient.dtype(), table.gradient.shape());
}

Parameter* Gpt::tied_weight() noexcept {
  if (stage_.is_alone()) return nullptr;
  if (stage_.is_first()) return &embedding_->table();
  return output_weight_.get();
}

}  // namespace amaxscope::megatron
