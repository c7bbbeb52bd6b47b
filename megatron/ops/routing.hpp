// Top-k softmax routing of tokens to experts, and the permutation of rows that goes with it, forward and
// backward by hand. Token by token in double, so that every rank that has the same tokens decides alike.
// Views CPU, contiguous, one compute dtype (f64, f32, bf16); results rounded once per element. Error(kTensor)
// on a wrong view.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor.hpp"

namespace amaxscope::megatron {

struct Routing {
  std::int64_t top_k = 1;
  Tensor logits;                      ///< [T, E], f32 (f64 under f64)
  std::vector<double> probabilities;  ///< [T, E], softmax over all experts
  std::vector<std::int32_t> chosen;   ///< [T, top_k] experts, the likeliest first; of equals the lowest
  std::vector<std::int64_t> rows;     ///< [E]: tokens of each expert
  /// [T * top_k]: the row of each choice when rows are ordered by expert, then by token.
  std::vector<std::int64_t> row_of_choice;

  [[nodiscard]] std::int64_t experts() const noexcept { return static_cast<std::int64_t>(rows.size()); }
  [[nodiscard]] std::int64_t tokens() const noexcept { return logits.rows(); }
};

/// x [T, H], weight [E, H]: logits = x weight^T. 1 <= top_k <= E.
Routing route(const TensorView& x, const TensorView& weight, std::int64_t top_k);
/// dprobabilities [T * top_k], of the chosen ones. dweight [E, H] (f32, f64 under f64) is added to; returns
/// dx [T, H] in double.
std::vector<double> route_backward(const Routing& routing, const TensorView& x, const TensorView& weight,
                                   std::span<const double> dprobabilities, const MutableTensorView& dweight);

/// Rows of x [T, H] once for each choice, in the order of the experts: [T * top_k, H].
Tensor dispatch(const Routing& routing, const TensorView& x);
/// dx [T, H] = extra [T, H] + the sum of each token's rows of dy [T * top_k, H].
Tensor dispatch_backward(const Routing& routing, const TensorView& dy, std::span<const double> extra);

/// y [T, H] = the sum of each token's rows of x [T * top_k, H], each times its probability.
Tensor combine(const Routing& routing, const TensorView& x);
struct CombineGradients {
  Tensor dx;                           ///< [T * top_k, H]
  std::vector<double> dprobabilities;  ///< [T * top_k]
};
CombineGradients combine_backward(const Routing& routing, const TensorView& x, const TensorView& dy);

}  // namespace amaxscope::megatron
