// What happens to gradients between backward and the optimizer, and a digest of weights.
#pragma once

#include <cstdint>
#include <span>

#include "collectives/communicator.hpp"
#include "megatron/parameter.hpp"

namespace amaxscope::megatron {

/// Replicated parameters marked reduce_gradient_over_tp become the sum over tp; then every gradient becomes
/// the mean over dp. Null groups, and groups of one rank, do nothing; neither is anything done to the last
/// stage's copy of the tied weight. Collective over both (trainer traffic).
void reduce_gradients(std::span<Parameter* const> parameters, Communicator* tp, Communicator* dp);

/// With several pipeline stages the tied weight is on the first and on the last (Gpt::tied_weight). Before
/// reduce_gradients the first adds the last's gradient to its own; after it the last gets the result, so that
/// both take the same optimizer step bit for bit, whatever the order of any sum. Null weight or group:
/// nothing. A message between these two stages each.
void collect_tied_gradient(Parameter* tied, Communicator* pp);
void return_tied_gradient(Parameter* tied, Communicator* pp);

/// L2 norm of the whole model's gradient in double: parts summed over tp, replicated parameters and the tied
/// weight counted once; the same bits on all ranks. After reduce_gradients. Collective over tp and pp.
/// Squares are added parameter after parameter through the stages, as one stage would.
double gradient_norm(std::span<Parameter* const> parameters, Communicator* tp, Communicator* pp = nullptr);

/// Multiplies all gradients by max_norm / norm when norm is finite and greater than max_norm.
void clip_gradients(std::span<Parameter* const> parameters, double norm, double max_norm);

/// FNV-1a over the bytes of the master weights of this rank, in order: equal exactly when all bits are (up to
/// collisions).
std::uint64_t weights_digest(std::span<Parameter* const> parameters);

}  // namespace amaxscope::megatron
