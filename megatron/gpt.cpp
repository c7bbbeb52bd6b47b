#include "megatron/gpt.hpp"

#include <cmath>

#include "core/error.hpp"
#include "megatron/faults.hpp"
#include "megatron/ops/loss.hpp"

namespace amaxscope::megatron {

namespace {

constexpr std::string_view kOutputLayer = "output_layer";

std::string layer_name(std::int64_t number) { return fmt::format("decoder.layers.{}", number); }

GptOptions checked(const LayerContext& context, GptOptions options) {
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
  AMAXSCOPE_CHECK(options.hidden % options.heads == 0, ErrorCode::kUsage,
                  "hidden {} is not divisible by heads {}", options.hidden, options.heads);
  AMAXSCOPE_CHECK(options.experts >= 0, ErrorCode::kUsage, "experts is {}; 0 stands for none",
                  options.experts);
  return options;
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

Gpt::Gpt(const LayerContext& context, const GptOptions& options)
    : context_(context), options_(checked(context, options)) {
  context_.sequence = options_.sequence;
  if (context.faults != nullptr) context.faults->require_layers(layer_names(options_));
  embedding_ = std::make_unique<Embedding>(context_,
                                           EmbeddingOptions{.vocabulary = options_.vocabulary,
                                                            .sequence = options_.sequence,
                                                            .hidden = options_.hidden,
                                                            .initial_std = options_.initial_std,
                                                            .learned_positions = !options_.rotary_positions});
  embedding_->collect(parameters_);
  const double output_std = options_.initial_std / std::sqrt(2.0 * static_cast<double>(options_.layers));
  for (std::int64_t number = 1; number <= options_.layers; ++number) {
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
  final_norm_ = std::make_unique<Norm>(context_, options_.norm, "decoder.final_layernorm", options_.hidden);
  final_norm_->collect(parameters_);
  LayerContext output_context = context_;
  output_context.recipe = RecipeKind::kNone;
  output_layer_ = std::make_unique<ColumnParallelLinear>(output_context,
                                                         LinearOptions{.name = std::string(kOutputLayer),
                                                                       .number = std::nullopt,
                                                                       .inputs = options_.hidden,
                                                                       .outputs = options_.vocabulary,
                                                                       .bias = false},
                                                         &embedding_->table());
}

std::vector<std::string> Gpt::layer_names(const GptOptions& options) {
  std::vector<std::string> gemms = {"self_attention.linear_qkv", "self_attention.linear_proj"};
  for (std::string& gemm : mlp_gemms(options)) gemms.push_back(std::move(gemm));
  std::vector<std::string> names;
  for (std::int64_t number = 1; number <= options.layers; ++number) {
    for (const std::string& gemm : gemms) names.push_back(fmt::format("{}.{}", layer_name(number), gemm));
  }
  names.emplace_back(kOutputLayer);
  return names;
}

void Gpt::observe(std::string_view name, std::string_view kind, const TensorView& view, Layout layout,
                  const TensorMoment& moment) const {
  if (context_.session != nullptr) context_.session->observe(name, kind, view, layout, moment);
}

double Gpt::forward(const Batch& batch, double gradient_scale, const TensorMoment& moment, Saved* saved) {
  const Layout residual_layout = context_.splits_sequence() ? Layout::kShard0 : Layout::kReplicated;
  Tensor x = embedding_->forward(batch.inputs);
  if (saved != nullptr) {
    saved->inputs = batch.inputs;
    saved->layers.resize(layers_.size());
  }
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    x = layers_[i]->forward(std::move(x), moment, saved != nullptr ? &saved->layers[i] : nullptr);
    observe(layers_[i]->name(), "residual", x.view(), residual_layout, moment);
  }
  Tensor normed = final_norm_->forward(x.view(), saved != nullptr ? &saved->final_norm : nullptr);
  const Tensor logits =
      output_layer_->forward(std::move(normed), moment, saved != nullptr ? &saved->output_layer : nullptr);
  observe(kOutputLayer, "logits", logits, context_.tp_size() > 1 ? Layout::kShard1 : Layout::kReplicated,
          moment);
  LossResult loss = cross_entropy(logits, batch.targets, gradient_scale, context_.tp);
  if (saved != nullptr) {
    saved->final_input = std::move(x);
    saved->dlogits = std::move(loss.dlogits);
  }
  return loss.mean_loss;
}

void Gpt::backward(int microbatch, Saved& saved) {
  const TensorMoment moment{.phase = Phase::kBackward, .microbatch = microbatch};
  const Tensor dnormed = output_layer_->backward(saved.dlogits.view(), moment, saved.output_layer);
  Tensor dx = final_norm_->backward(saved.final_input.view(), dnormed, saved.final_norm);
  for (std::size_t i = layers_.size(); i-- > 0;)
    dx = layers_[i]->backward(dx.view(), moment, saved.layers[i]);
  embedding_->backward(dx.view(), saved.inputs);
  saved.final_input.release();
  saved.final_norm = {};
  saved.dlogits.release();
}

}  // namespace amaxscope::megatron
