// LayerNorm or RMSNorm with its parameters, on the rows that this rank holds.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "megatron/context.hpp"
#include "megatron/ops/normalization.hpp"
#include "megatron/parameter.hpp"

namespace amaxscope::megatron {

struct NormOptions {
  NormKind kind = NormKind::kLayerNorm;
  double epsilon = 1e-5;
};

class Norm {
 public:
  /// Parameters are `name`_weight and `name`_bias for a name that ends in "layer_norm", else `name`.weight
  /// and .bias. RMSNorm has no bias. Replicated over tp; under sequence parallelism their gradients are
  /// summed over it.
  Norm(const LayerContext& context, NormOptions options, const std::string& name, std::int64_t width);
  /// For a norm whose rows are split over tp in another way: sums_over_tp says whether each rank's gradient
  /// is a summand.
  Norm(const LayerContext& context, NormOptions options, const std::string& name, std::int64_t width,
       bool sums_over_tp);
  Norm(const Norm&) = delete;
  Norm& operator=(const Norm&) = delete;

  /// saved null: no backward follows. backward takes the same x.
  Tensor forward(const TensorView& x, NormSaved* saved) const;
  Tensor backward(const TensorView& x, const TensorView& dy, const NormSaved& saved);
  void collect(std::vector<Parameter*>& parameters);

 private:
  NormOptions options_;
  std::unique_ptr<Parameter> weight_;
  std::unique_ptr<Parameter> bias_;
};

}  // namespace amaxscope::megatron
