// The planted faults of a training step outside of the layers: weights, gradients and the optimizer. Used by
// one thread; nothing here communicates.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "megatron/faults.hpp"
#include "megatron/parameter.hpp"

namespace amaxscope::megatron {

class TrainingFaults {
 public:
  /// Which part of the training this rank has. Parameters must outlive it.
  struct Place {
    std::span<Parameter* const> parameters;
    std::vector<std::string> parameters_of_other_stages = {};  ///< names
    int tp_rank = 0;
    int tp_size = 1;
    std::int64_t channels = 0;  ///< of each SwiGLU, over all ranks of tp; 0 without SwiGLU
  };
  /// The table must outlive it. Throws Error(kUsage) for a fault that cannot strike in this training, on all
  /// ranks of the stage that has the parameter, or on all ranks.
  TrainingFaults(const FaultTable& faults, const Place& place);

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
  void require_reduced_over_tp(const Fault& fault, const Place& place) const;
  /// Null: another pipeline stage has it.
  [[nodiscard]] Parameter* find(const std::string& name) const noexcept;
  void require_channel(const Fault& fault, std::int64_t channels, int tp_size) const;

  const FaultTable& faults_;
  std::vector<Parameter*> parameters_;
  int tp_rank_;
};

}  // namespace amaxscope::megatron
