// A trainable tensor: its master copy, its gradient, the copy that layers compute with, and how it lies over
// ranks. Owned by its layer; the optimizer and the trainer see it through Parameter*.
#pragma once

#include <cstdint>
#include <string>

#include "core/tensor.hpp"
#include "runtime/names.hpp"

namespace amaxscope::megatron {

struct Parameter {
  std::string name;  ///< "decoder.layers.1.mlp.linear_fc1.weight"
  Tensor master;     ///< f32 (f64 under f64 compute)
  /// Compute dtype, refreshed from master after each optimizer step. Undefined for a weight that exists in
  /// FP8 only: its layer makes the codes from master.
  Tensor compute;
  Tensor gradient;                      ///< f32 (f64 under f64), accumulated over micro-batches
  Layout layout = Layout::kReplicated;  ///< over tp_group
  /// Counts refresh_compute(), so that who has a copy elsewhere knows when it is old.
  std::uint64_t version = 0;
  /// Under sequence parallelism the gradient of a replicated parameter (norm weights, row biases) is a sum
  /// over this rank's tokens only and is all-reduced over tp_group before the step.
  bool reduce_gradient_over_tp = false;
  /// The last pipeline stage's copy of the tied weight: the first stage reduces its gradient and counts it.
  bool copy_of_first_stage = false;

  Parameter() = default;
  Parameter(std::string name, Shape local_shape, DType compute_dtype, Layout layout);
  void zero_gradient();
  void refresh_compute();  ///< the master has changed: compute = master, rounded, where there is one
};

/// Values of one slice of a global tensor, normal(0, std), a pure function of (seed, name, global element
/// index), so that the shards of every split hold the same numbers. global_shape [N, K]; the slice starts at
/// row0, col0 and has the parameter's shape.
void initialize_normal(Parameter& parameter, std::uint64_t seed, Shape global_shape, std::int64_t row0,
                       std::int64_t col0, double std);
void initialize_constant(Parameter& parameter, double value);

}  // namespace amaxscope::megatron
