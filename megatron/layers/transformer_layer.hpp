// A pre-norm transformer layer: h = x + attention(x), y = h + mlp(h). Norms are inside the two blocks. With
// recompute a forward keeps only x, and backward runs it again in Phase::kRecompute before it goes back.
#pragma once

#include <string>

#include "megatron/layers/layer_norm_mlp.hpp"
#include "megatron/layers/moe_mlp.hpp"
#include "megatron/layers/self_attention.hpp"

namespace amaxscope::megatron {

struct TransformerLayerOptions {
  std::string name;  ///< "decoder.layers.1"
  int number = 1;    ///< 1-based
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t sequence = 0;
  std::int64_t ffn_hidden = 0;
  MlpKind mlp = MlpKind::kGelu;
  NormOptions norm;
  double initial_std = 0.02;
  double output_initial_std = 0.02;  ///< of linear_proj and linear_fc2
  bool rotary_positions = false;
  bool qk_norm = false;
  bool recompute = false;
  int experts = 0;  ///< of a mixture of experts in place of the dense block; 0: dense
  std::int64_t top_k = 1;
};

class TransformerLayer {
 public:
  struct Saved {
    Tensor input;  ///< x
    SelfAttention::Saved attention;
    Tensor middle;  ///< h
    LayerNormMlp::Saved mlp;
    MoeMlp::Saved experts;
  };
  TransformerLayer(const LayerContext& context, const TransformerLayerOptions& options);

  /// x: this rank's part of the residual stream. saved null: no backward follows this call.
  Tensor forward(Tensor x, const TensorMoment& moment, Saved* saved);
  Tensor backward(const TensorView& dy, const TensorMoment& moment, Saved& saved);
  void collect(std::vector<Parameter*>& parameters);
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  /// The layer itself; keeps everything but x.
  Tensor run(const TensorView& x, const TensorMoment& moment, Saved* saved);

  std::string name_;
  bool recompute_;
  SelfAttention attention_;
  std::unique_ptr<LayerNormMlp> mlp_;
  std::unique_ptr<MoeMlp> experts_;  ///< in its place
};

}  // namespace amaxscope::megatron
