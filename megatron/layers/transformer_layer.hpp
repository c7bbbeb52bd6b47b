// A pre-norm transformer layer: h = x + attention(x), y = h + mlp(h). Norms are inside the two blocks.
#pragma once

#include <string>

#include "megatron/layers/layer_norm_mlp.hpp"
#include "megatron/layers/self_attention.hpp"

namespace amaxscope::megatron {

struct TransformerLayerOptions {
  std::string name;  ///< "decoder.layers.1"
  int number = 1;    ///< 1-based
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t sequence = 0;
  std::int64_t ffn_hidden = 0;
  NormOptions norm;
  double initial_std = 0.02;
  double output_initial_std = 0.02;  ///< of linear_proj and linear_fc2
};

class TransformerLayer {
 public:
  struct Saved {
    Tensor input;  ///< x
    SelfAttention::Saved attention;
    Tensor middle;  ///< h
    LayerNormMlp::Saved mlp;
  };
  TransformerLayer(const LayerContext& context, const TransformerLayerOptions& options);

  /// x: this rank's part of the residual stream. saved null: no backward follows.
  Tensor forward(Tensor x, const TensorMoment& moment, Saved* saved);
  Tensor backward(const TensorView& dy, const TensorMoment& moment, Saved& saved);
  void collect(std::vector<Parameter*>& parameters);
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  std::string name_;
  SelfAttention attention_;
  LayerNormMlp mlp_;
};

}  // namespace amaxscope::megatron
