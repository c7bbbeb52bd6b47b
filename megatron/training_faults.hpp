// The planted faults of a training step outside of the layers: weights, gradients and the optimizer. Used by
// one thread; nothing here communicates.
#pragma once

#include <span>
#include <vector>

#include "megatron/faults.hpp"
#include "megatron/parameter.hpp"

namespace amaxscope::megatron {

class TrainingFaults {
 public:
  /// Parameters and table must outlive it. channels: of each SwiGLU, over all ranks of tp; 0 without SwiGLU.
  /// Throws Error(kUsage) for a fault that cannot strike in this training, on all ranks alike.
  TrainingFaults(const FaultTable& faults, std::span<Parameter* const> parameters, int tp_rank, int tp_size,
                 std::int64_t channels);

  /// After FaultTable::begin_iteration, before the first forward: grow_channel and skip_gradient_reduction.
  void begin_step();
  /// Before the gradient norm: adam_lag makes them jump. True: the step is neither clipped nor seen by the
  /// second moments.
  [[nodiscard]] bool enlarge_gradients() const;
  /// no_master_weights is due: weights are what BF16 holds of them.
  [[nodiscard]] bool weights_are_bf16() const;
  /// After the optimizer: no_master_weights.
  void end_step() const;

 private:
  void grow_channel(const Fault& fault) const;
  [[nodiscard]] Parameter* find(const std::string& name) const noexcept;
  void require_channel(const Fault& fault, std::int64_t channels, int tp_size) const;

  const FaultTable& faults_;
  std::vector<Parameter*> parameters_;
  int tp_rank_;
};

}  // namespace amaxscope::megatron
