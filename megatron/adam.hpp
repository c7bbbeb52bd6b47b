// Adam with decoupled weight decay on master copies; moments in f32 (f64 under f64). Elementwise, so a
// shard's update equals that slice of the whole tensor's.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "megatron/parameter.hpp"

namespace amaxscope::megatron {

struct AdamOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
};

class Adam {
 public:
  /// Parameters must outlive the optimizer. Throws Error(kUsage) for a null parameter or an option out of
  /// range.
  Adam(std::vector<Parameter*> parameters, AdamOptions options);
  /// One update from parameter->gradient at this learning rate; refreshes the compute copies. Calculated in
  /// double. weight_decay applies to every parameter given, norms and biases included.
  /// second_moment_lags: the second moments are used and left as they are (a planted fault).
  void step(double learning_rate, bool second_moment_lags = false);
  [[nodiscard]] const AdamOptions& options() const noexcept { return options_; }

  // For saving and restoring; moments by the order of the parameters.
  [[nodiscard]] MutableTensorView first_moment(std::size_t index) { return first_moments_.at(index); }
  [[nodiscard]] MutableTensorView second_moment(std::size_t index) { return second_moments_.at(index); }
  [[nodiscard]] std::int64_t steps() const noexcept { return steps_; }
  void set_steps(std::int64_t steps) noexcept { steps_ = steps; }

 private:
  std::vector<Parameter*> parameters_;
  AdamOptions options_;
  std::vector<Tensor> first_moments_;
  std::vector<Tensor> second_moments_;
  std::int64_t steps_ = 0;
};

}  // namespace amaxscope::megatron
