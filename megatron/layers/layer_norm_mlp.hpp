// The feed-forward block: norm, fc1 (column parallel), GELU or SwiGLU, fc2 (row parallel). Under SwiGLU fc1
// makes gate and up: outputs 2c and 2c + 1 are those of channel c, so every rank of tp holds both of its
// channels and the whole weight is the same for every tp.
#pragma once

#include <string>

#include "megatron/layers/layer_norm_linear.hpp"

namespace amaxscope::megatron {

enum class MlpKind { kGelu, kSwiglu };

struct MlpOptions {
  std::string name;           ///< the GEMMs are `name`.linear_fc1 and `name`.linear_fc2
  std::optional<int> number;  ///< 1-based number of the transformer layer
  std::int64_t hidden = 0;
  std::int64_t ffn_hidden = 0;  ///< outputs of fc1 after the activation function
  MlpKind kind = MlpKind::kGelu;
  NormOptions norm;
  double initial_std = 0.02;
  double output_initial_std = 0.02;  ///< of fc2
};

/// Outputs of fc1 for so many channels of the activation function.
constexpr std::int64_t fc1_outputs(MlpKind kind, std::int64_t ffn_hidden) noexcept {
  return kind == MlpKind::kSwiglu ? 2 * ffn_hidden : ffn_hidden;
}
/// What fc2 gets for the outputs of fc1.
Tensor activate(MlpKind kind, const Tensor& pre_activation);
Tensor activate_backward(MlpKind kind, const Tensor& pre_activation, const Tensor& dy);

class LayerNormMlp {
 public:
  struct Saved {
    LayerNormLinear::Saved fc1;
    Tensor pre_activation;
    Linear::Saved fc2;
  };
  LayerNormMlp(const LayerContext& context, const MlpOptions& options);

  /// saved null: no backward follows this call. The caller keeps x until backward, which takes it again and
  /// returns dx.
  Tensor forward(const TensorView& x, const TensorMoment& moment, Saved* saved);
  Tensor backward(const TensorView& x, const TensorView& dy, const TensorMoment& moment, Saved& saved);
  void collect(std::vector<Parameter*>& parameters);

 private:
  MlpKind kind_;
  LayerNormLinear fc1_;
  RowParallelLinear fc2_;
};

}  // namespace amaxscope::megatron
