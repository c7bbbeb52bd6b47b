// A byte-level GPT: tied vocab-parallel embedding, learned or rotary positions, pre-norm layers, final norm,
// output_layer. GEMM layers are named decoder.layers.<n>.self_attention.linear_qkv,
// .self_attention.linear_proj, .mlp.linear_fc1, .mlp.linear_fc2 (n from 1) and output_layer; the last has the
// embedding's weight and stays in high precision. With experts the block's GEMMs are
// .mlp.experts.linear_fc1.gemm_<i> and .mlp.experts.linear_fc2.gemm_<i> (i from 0). Used by one thread.
// forward and backward are collective over tp.
//
// With several pipeline stages a Gpt is one of them: an equal share of the layers, under the numbers that
// they have in the whole model; the first stage has the embedding, the last the final norm and output_layer,
// whose copy of the tied weight is called output_layer.weight there.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "megatron/layers/embedding.hpp"
#include "megatron/layers/transformer_layer.hpp"
#include "megatron/pipeline.hpp"
#include "megatron/text_data.hpp"

namespace amaxscope::megatron {

struct GptOptions {
  std::int64_t layers = 2;
  std::int64_t hidden = 128;
  std::int64_t heads = 4;
  std::int64_t sequence = 128;
  std::int64_t ffn_hidden = 0;  ///< 0: four times hidden
  std::int64_t vocabulary = 256;
  NormOptions norm;
  /// Of all weights; linear_proj and linear_fc2 get it divided by sqrt(2 * layers).
  double initial_std = 0.02;
  MlpKind mlp = MlpKind::kGelu;
  bool rotary_positions = false;  ///< instead of learned ones
  bool qk_norm = false;
  bool recompute = false;  ///< of whole transformer layers
  int experts = 0;         ///< of each layer's mixture of experts; 0: dense
  std::int64_t top_k = 1;  ///< experts of a token
  /// Not 0: the seed of errors of every element that enters a transformer layer, of the size that a GEMM
  /// which sums in another order makes, and of other draws of stochastic rounding: to see how far rounding
  /// moves what comes after it.
  std::uint64_t perturb = 0;
};

class Gpt {
 public:
  struct Saved {
    std::vector<std::int32_t> inputs;
    std::vector<TransformerLayer::Saved> layers;
    Tensor final_input;
    NormSaved final_norm;
    Linear::Saved output_layer;
    Tensor dlogits;
  };

  /// Throws Error(kUsage) that names the two sizes when tp does not divide the vocabulary, heads, hidden,
  /// ffn_hidden or (with sequence parallelism) the sequence, or the stages do not divide the layers, and for
  /// a fault at a layer that is not in the whole model.
  Gpt(const LayerContext& context, const GptOptions& options, const PipelineStage& stage = {});
  Gpt(const Gpt&) = delete;
  Gpt& operator=(const Gpt&) = delete;

  /// Mean loss of the batch in nats per token, the same on all ranks of tp. gradient_scale multiplies the
  /// gradient of the *summed* loss: 1 / (tokens of all micro-batches) for their mean. saved null: no backward
  /// follows.
  double forward(const Batch& batch, double gradient_scale, const TensorMoment& moment, Saved* saved);
  /// Adds to the gradients of the parameters; empties saved.
  void backward(int microbatch, Saved& saved);

  /// One stage's part of a forward. received: what the previous stage returned (the first: nothing). Returns
  /// what the next stage is to get, of hidden_shape() in the compute dtype; the last returns nothing and adds
  /// the batch's mean loss to `loss`.
  Tensor forward_stage(const Batch& batch, Tensor received, double gradient_scale, const TensorMoment& moment,
                       Saved* saved, double& loss);
  /// received: the gradient of what forward_stage returned (the last: nothing). Returns that of what it
  /// received.
  Tensor backward_stage(int microbatch, Tensor received, Saved& saved);
  /// Of the rows between two stages: this rank's share of them under sequence parallelism.
  [[nodiscard]] Shape hidden_shape(const Batch& batch) const;
  /// After the last backward of a step. The tied weight's gradient is summed over its two uses apart, and
  /// they are added here, so that its bits do not depend on whether both uses are on one stage.
  void complete_gradients();
  /// The weight that the first and the last of several stages each have a copy of; null on other stages.
  [[nodiscard]] Parameter* tied_weight() noexcept;

  [[nodiscard]] const std::vector<Parameter*>& parameters() const noexcept { return parameters_; }
  [[nodiscard]] const GptOptions& options() const noexcept { return options_; }
  [[nodiscard]] const PipelineStage& stage() const noexcept { return stage_; }
  /// Names of the GEMM layers of such a model, or of one of its stages.
  static std::vector<std::string> layer_names(const GptOptions& options, const PipelineStage& stage = {});

 private:
  void observe(std::string_view name, std::string_view kind, const TensorView& view, Layout layout,
               const TensorMoment& moment) const;

  void build_output();

  LayerContext context_;
  GptOptions options_;
  PipelineStage stage_;
  std::unique_ptr<Embedding> embedding_;  ///< of the first stage
  Tensor lookup_gradient_;  ///< of the tied weight as the embedding, where output_layer has it too
  std::vector<std::unique_ptr<TransformerLayer>> layers_;
  std::unique_ptr<Norm> final_norm_;          ///< of the last stage, as is what follows
  std::unique_ptr<Parameter> output_weight_;  ///< the last stage's copy of the tied weight
  std::unique_ptr<ColumnParallelLinear> output_layer_;
  std::vector<Parameter*> parameters_;
};

}  // namespace amaxscope::megatron
