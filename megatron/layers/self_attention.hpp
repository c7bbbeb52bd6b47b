// Causal self-attention: norm, linear_qkv (column parallel), attention of the heads this rank holds,
// linear_proj (row parallel). Between linear_qkv and attention, as asked for: an RMS norm of every query and
// key
// (`name`.q_layernorm and .k_layernorm, whose weights all heads share), then rotary positions.
#pragma once

#include <string>

#include "megatron/layers/layer_norm_linear.hpp"
#include "megatron/ops/attention.hpp"

namespace amaxscope::megatron {

struct AttentionOptions {
  std::string name;           ///< the GEMMs are `name`.linear_qkv and `name`.linear_proj
  std::optional<int> number;  ///< 1-based number of the transformer layer
  std::int64_t hidden = 0;
  std::int64_t heads = 0;     ///< of all ranks
  std::int64_t sequence = 0;  ///< tokens of a sequence; the batch is what the rows of x leave
  NormOptions norm;
  double initial_std = 0.02;
  double output_initial_std = 0.02;  ///< of linear_proj
  bool rotary_positions = false;     ///< heads must have an even number of elements
  bool qk_norm = false;
};

class SelfAttention {
 public:
  struct HeadNormSaved {
    Tensor rows;
    NormSaved norm;
  };
  struct Saved {
    LayerNormLinear::Saved qkv;
    HeadNormSaved query;  ///< with qk_norm
    HeadNormSaved key;
    Tensor attention_input;
    Tensor probabilities;
    Linear::Saved proj;
  };
  /// Throws Error(kUsage) when heads are not divisible by tp or hidden is not by heads.
  SelfAttention(const LayerContext& context, const AttentionOptions& options);

  /// saved null: no backward follows this call. The caller keeps x until backward, which takes it again and
  /// returns dx.
  Tensor forward(const TensorView& x, const TensorMoment& moment, Saved* saved);
  Tensor backward(const TensorView& x, const TensorView& dy, const TensorMoment& moment, Saved& saved);
  void collect(std::vector<Parameter*>& parameters);

 private:
  [[nodiscard]] AttentionShape local_shape(std::int64_t tokens) const;
  /// In place on the fused qkv, or on its gradient.
  void prepare_heads(const AttentionShape& shape, Tensor& qkv, Saved* saved) const;
  void prepare_heads_backward(const AttentionShape& shape, Tensor& dqkv, Saved& saved);

  std::int64_t sequence_;
  std::int64_t local_heads_;
  std::int64_t head_dim_;
  bool rotary_positions_;
  LayerNormLinear qkv_;
  std::unique_ptr<Norm> query_norm_;
  std::unique_ptr<Norm> key_norm_;
  RowParallelLinear proj_;
};

}  // namespace amaxscope::megatron
