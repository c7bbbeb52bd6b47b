// Queries and keys of attention heads: taken out of and put back into the fused qkv, and turned by rotary
// positions. Layouts and dtypes as in ops/attention.hpp. Views CPU, contiguous, one compute dtype (f64, f32,
// bf16). Error(kTensor) on a wrong view.
#pragma once

#include "core/tensor.hpp"
#include "megatron/ops/attention.hpp"

namespace amaxscope::megatron {

enum class HeadPart { kQuery, kKey };

/// The part of every head of every token as [S*B*heads, D]: row (token * heads + head).
Tensor take_heads(const AttentionShape& shape, const TensorView& qkv, HeadPart part);
/// The inverse: writes rows [S*B*heads, D] over that part of qkv.
void put_heads(const AttentionShape& shape, const TensorView& rows, HeadPart part,
               const MutableTensorView& qkv);

/// Rotary positions (Su et al. 2021) on the queries and keys of qkv, in place: element i < D/2 and element
/// i + D/2 of a head are turned as a pair by the angle s * 10000^(-2i/D), s the token's place in its
/// sequence. Angles in double; products in f32 (f64 under f64), rounded once. D must be even.
void rotate_positions(const AttentionShape& shape, const MutableTensorView& qkv);
/// Turned back: the gradient with respect to what rotate_positions was given.
void rotate_positions_back(const AttentionShape& shape, const MutableTensorView& dqkv);

}  // namespace amaxscope::megatron
