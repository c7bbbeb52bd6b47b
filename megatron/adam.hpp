// Adam with decoupled weight decay on master copies; moments in f32 (f64 under f64). Elementwise, so a
// shard's update equals that slice of the whole tensor's.
#pragma once

#include <cstdint>
#include <functional>
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

/// Who wants to see what a step is about to do. Both are called for each parameter, in order, before it
/// changes; what tell() is given is computed only when wants() said so, and lives during the call.
struct UpdateObserver {
  std::function<bool(const Parameter&)> wants;
  /// update: f32, what will be added to the master copy; normalized_gradient: f32, g / (sqrt(v) + epsilon)
  /// with the second moment this step uses (bias corrected, this gradient included).
  std::function<void(const Parameter&, const TensorView& update, const TensorView& normalized_gradient)> tell;
};

class Adam {
 public:
  /// Parameters must outlive the optimizer. Throws Error(kUsage) for a null parameter or an option out of
  /// range.
  Adam(std::vector<Parameter*> parameters, AdamOptions options);
  /// One update from parameter->gradient at this learning rate; refreshes the compute copies. Calculated in
  /// double. weight_decay applies to every parameter given, norms and biases included.
  /// second_moment_lags: the second moments are used and left as they are (a planted fault).
  void step(double learning_rate, bool second_moment_lags = false, const UpdateObserver& observer = {});
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
