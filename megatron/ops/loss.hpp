// Cross entropy over logits whose vocabulary is split over tp_group (Megatron's vocab-parallel cross
// entropy), and the vocab-parallel embedding. Loss and gradients are the same bits for every split of the
// vocabulary: exponentials are calculated in double and summed as integers, which no order of summation
// changes.
#pragma once

#include <cstdint>
#include <span>

#include "collectives/communicator.hpp"
#include "core/tensor.hpp"

namespace amaxscope::megatron {

struct LossResult {
  double mean_loss = 0;  ///< nats per token, the same on all ranks of tp_group
  Tensor dlogits;        ///< [M, V/t] in the dtype of logits: (softmax - onehot) * scale
};

/// logits [M, V/t], this rank's slice of the vocabulary starting at rank * V/t. targets [M], global ids.
/// scale is applied to dlogits (1 / (tokens of all micro-batches)). Two all-reduces of 8 and 16 bytes a token
/// over tp_group (trainer traffic); null, or a group of one: none. A row with a NaN or +inf logit, or with
/// none above -inf, has the loss and gradient NaN. Views f64, f32 or bf16. Error(kTensor) on a wrong view, or
/// on a target outside the vocabulary (on all ranks alike, before any traffic).
LossResult cross_entropy(const TensorView& logits, std::span<const std::int32_t> targets, double scale,
                         Communicator* tp_group);

/// out [M, H] = rows of table for the ids; weight is this rank's slice [V/t, H]. Ids outside it contribute
/// zeros, and the sum over tp_group is exact because one rank holds each row. With sequence_parallel out is
/// this rank's [M/t, H]. Error(kTensor) on a wrong view, an id outside the vocabulary, or tokens that do not
/// split evenly.
void embedding_forward(const TensorView& weight, std::span<const std::int32_t> ids, Communicator* tp_group,
                       bool sequence_parallel, const MutableTensorView& out);
/// dweight (f32, f64 under f64) += the rows of dout [M, H] (gathered under sequence parallelism) this rank
/// holds, summed in double, tokens ascending.
void embedding_backward(const TensorView& dout, std::span<const std::int32_t> ids, Communicator* tp_group,
                        bool sequence_parallel, const MutableTensorView& dweight);

}  // namespace amaxscope::megatron
