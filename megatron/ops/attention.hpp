// Causal self-attention of the heads a rank holds, forward and backward by hand. Heads are independent and
// computed one by one in a fixed order of arithmetic, so results do not depend on how heads are split over
// ranks. Row r of a [S*B, ..] matrix is token s = r / B of sequence b = r % B (Megatron's [s, b, h] order).
// qkv [S*B, heads*3*D]: for each head its q, k, v, D values each (Megatron's interleaved order).
// context [S*B, heads*D]. Views CPU, contiguous, one compute dtype (f64, f32, bf16). Products and their sums
// in f32 (f64 under f64), softmax in double; results rounded once to bf16. Error(kTensor) on a wrong view.
#pragma once

#include "core/tensor.hpp"

namespace amaxscope::megatron {

struct AttentionShape {
  std::int64_t sequence = 0;
  std::int64_t batch = 0;
  std::int64_t heads = 0;  ///< of this rank
  std::int64_t head_dim = 0;
};

/// Saves the probabilities [B, heads, S, S] (f32, f64 under f64) for backward; returns them.
Tensor attention_forward(const AttentionShape& shape, const TensorView& qkv,
                         const MutableTensorView& context);

void attention_backward(const AttentionShape& shape, const TensorView& qkv, const TensorView& probabilities,
                        const TensorView& dcontext, const MutableTensorView& dqkv);

}  // namespace amaxscope::megatron
