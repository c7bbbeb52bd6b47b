// Cross entropy over logits whose vocabulary is split over tp_group (Megatron's vocab-parallel cross entropy), and the
// vocab-parallel embedding. To keep the result independent of the split, the sum of exponentials is built from
// all-gathered per-token terms in vocabulary order, in double.
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
/// scale is applied to dlogits (1 / (tokens of all micro-batches)). Collective over tp_group (trainer traffic); null: one rank.
LossResult cross_entropy(const TensorView& logits, std::span<const std::int32_t> targets, double scale,
                         Communicator* tp_group);

/// out [M, H] = rows of table for the ids; weight is this rank's slice [V/t, H]. Ids outside it contribute zeros, and the
/// sum over tp_group is exact because one rank holds each row. With sequence_parallel out is this rank's [M/t, H].
void embedding_forward(const TensorView& weight, std::span<const std::int32_t> ids, Communicator* tp_group,
                       bool sequence_parallel, const MutableTensorView& out);
/// dweight (f32, f64 under f64) += the rows of dout [M, H] (gathered under sequence parallelism) this rank holds.
void embedding_backward(const TensorView& dout, std::span<const std::int32_t> ids, Communicator* tp_group,
                        bool sequence_parallel, const MutableTensorView& dweight);

}  // namespace amaxscope::megatron
