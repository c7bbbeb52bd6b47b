// The feed-forward block: norm, fc1 (column parallel), GELU, fc2 (row parallel).
#pragma once

#include <string>

#include "megatron/layers/layer_norm_linear.hpp"

namespace amaxscope::megatron {

struct MlpOptions {
  std::string name;           ///< the GEMMs are `name`.linear_fc1 and `name`.linear_fc2
  std::optional<int> number;  ///< 1-based number of the transformer layer
  std::int64_t hidden = 0;
  std::int64_t ffn_hidden = 0;  ///< outputs of fc1 after the activation function
  NormOptions norm;
  double initial_std = 0.02;
  double output_initial_std = 0.02;  ///< of fc2
};

class LayerNormMlp {
 public:
  struct Saved {
    LayerNormLinear::Saved fc1;
    Tensor pre_activation;
    Linear::Saved fc2;
  };
  LayerNormMlp(const LayerContext& context, const MlpOptions& options);

  /// saved null: no backward follows. The caller keeps x until backward, which takes it again and returns dx.
  Tensor forward(const TensorView& x, const TensorMoment& moment, Saved* saved);
  Tensor backward(const TensorView& x, const TensorView& dy, const TensorMoment& moment, Saved& saved);
  void collect(std::vector<Parameter*>& parameters);

 private:
  LayerNormLinear fc1_;
  RowParallelLinear fc2_;
};

}  // namespace amaxscope::megatron
