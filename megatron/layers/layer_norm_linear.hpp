// A norm followed by a column-parallel linear layer, whose activation is the norm's output in high precision.
// With sequence parallelism the norm works on this rank's rows and the linear layer gathers them.
#pragma once

#include "megatron/layers/linear.hpp"
#include "megatron/layers/norm.hpp"

namespace amaxscope::megatron {

class LayerNormLinear {
 public:
  struct Saved {
    NormSaved norm;
    Linear::Saved linear;
  };
  LayerNormLinear(const LayerContext& context, NormOptions norm, const LinearOptions& linear);

  /// saved null: no backward follows this call. The caller keeps x until backward, which takes it again and
  /// returns dx.
  Tensor forward(const TensorView& x, const TensorMoment& moment, Saved* saved);
  Tensor backward(const TensorView& x, const TensorView& dy, const TensorMoment& moment, Saved& saved);
  void collect(std::vector<Parameter*>& parameters);
  [[nodiscard]] const Linear& linear() const noexcept { return linear_; }

 private:
  Norm norm_;
  ColumnParallelLinear linear_;
};

}  // namespace amaxscope::megatron
