// A mixture of experts in place of the feed-forward block: norm, router, and for each expert fc1, activation
// function, fc2, tensor parallel as in the dense block. Experts are replicated over dp. The router's weight
// is replicated over tp, and every rank of tp routes all tokens (under sequence parallelism they are gathered
// in the compute dtype), so all decide alike and the router's gradient needs no reduction over tp.
#pragma once

#include <string>

#include "megatron/layers/grouped_linear.hpp"
#include "megatron/layers/layer_norm_mlp.hpp"
#include "megatron/ops/routing.hpp"

namespace amaxscope::megatron {

struct MoeOptions {
  /// As for the dense block; the GEMMs are `name`.experts.linear_fc1.gemm_<i> and .linear_fc2.gemm_<i>.
  MlpOptions mlp;
  std::string norm_name;  ///< "decoder.layers.1.pre_mlp_layernorm"
  int experts = 0;
  std::int64_t top_k = 1;
};

class MoeMlp {
 public:
  struct Saved {
    NormSaved norm;
    Tensor tokens;  ///< what is routed: the norm's output, of all rows
    Routing routing;
    GroupedLinear::Saved fc1;
    Tensor pre_activation;
    GroupedLinear::Saved fc2;
    Tensor expert_output;
  };
  /// Throws Error(kUsage) when top_k is not 1 to experts, and as LayerNormMlp does.
  MoeMlp(const LayerContext& context, const MoeOptions& options);

  /// saved null: no backward follows this call. The caller keeps x until backward, which takes it again and
  /// returns dx. The session is shown the router's logits and the number of tokens of each expert, as
  /// `name`.router and `name`.router.load.
  Tensor forward(const TensorView& x, const TensorMoment& moment, Saved* saved);
  Tensor backward(const TensorView& x, const TensorView& dy, const TensorMoment& moment, Saved& saved);
  void collect(std::vector<Parameter*>& parameters);

 private:
  void observe(const Routing& routing, const TensorMoment& moment) const;
  /// All rows of a matrix whose rows are split over tp under sequence parallelism, and this rank's of all.
  [[nodiscard]] Tensor all_rows(Tensor own, std::string_view what) const;
  [[nodiscard]] Tensor own_rows(Tensor all) const;

  LayerContext context_;
  std::string name_;
  MlpKind kind_;
  std::int64_t top_k_;
  Norm norm_;
  Parameter router_;
  GroupedLinear fc1_;
  GroupedLinear fc2_;
};

}  // namespace amaxscope::megatron
