// LayerNorm and RMSNorm, forward and backward by hand, row by row: each row's result depends on that row
// only, so it is the same for every split of the rows. All views CPU, contiguous, of one compute dtype (f64,
// f32, bf16); calculated in double and rounded once per element. Shapes: x, y, dy, dx [M, H]; weight, bias
// [H]. y may be x, and dx may be x or dy. Nothing blocks; Error(kTensor) on a wrong view.
#pragma once

#include "core/tensor.hpp"

namespace amaxscope::megatron {

enum class NormKind { kLayerNorm, kRmsNorm };

/// Per-row values that backward needs: mean (0 for RMSNorm) and 1/std, f64 [M] each.
struct NormSaved {
  Tensor mean;
  Tensor reciprocal_std;
};

/// y = (x - mean) / sqrt(var + epsilon) * weight + bias; RMSNorm: x / sqrt(mean(x^2) + epsilon) * weight.
/// bias is ignored (may be an empty view) for RMSNorm.
NormSaved norm_forward(NormKind kind, const TensorView& x, const TensorView& weight, const TensorView& bias,
                       double epsilon, const MutableTensorView& y);

/// dx is written; dweight and dbias (f32, or f64 under f64; summed over the rows in double) are added to.
void norm_backward(NormKind kind, const TensorView& x, const TensorView& weight, const NormSaved& saved,
                   const TensorView& dy, const MutableTensorView& dx, const MutableTensorView& dweight,
                   const MutableTensorView& dbias);

}  // namespace amaxscope::megatron
