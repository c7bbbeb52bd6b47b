// What happens to gradients between backward and the optimizer, and a digest of weights.
#pragma once

#include <cstdint>
#include <span>

#include "collectives/communicator.hpp"
#include "megatron/parameter.hpp"

namespace amaxscope::megatron {

/// Replicated parameters marked reduce_gradient_over_tp become the sum over tp; then every gradient becomes
/// the mean over dp. Null groups, and groups of one rank, do nothing. Collective over both (trainer traffic).
void reduce_gradients(std::span<Parameter* const> parameters, Communicator* tp, Communicator* dp);

/// L2 norm of the whole model's gradient in double: parts summed over tp, replicated parameters counted once;
/// the same on all ranks. After reduce_gradients. Collective over tp.
double gradient_norm(std::span<Parameter* const> parameters, Communicator* tp);

/// Multiplies all gradients by max_norm / norm when norm is finite and greater than max_norm.
void clip_gradients(std::span<Parameter* const> parameters, double norm, double max_norm);

/// FNV-1a over the bytes of the master weights of this rank, in order: equal exactly when all bits are (up to
/// collisions).
std::uint64_t weights_digest(std::span<Parameter* const> parameters);

}  // namespace amaxscope::megatron
