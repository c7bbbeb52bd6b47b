// GELU (exact, with erf) forward and backward, elementwise. Views CPU, contiguous, one compute dtype (f64,
// f32, bf16); calculated in f32 (f64 under f64) and rounded once to bf16. Error(kTensor) on a wrong view.
#pragma once

#include "core/tensor.hpp"

namespace amaxscope::megatron {

/// y = x * Phi(x)
void gelu_forward(const TensorView& x, const MutableTensorView& y);
/// dx = dy * (Phi(x) + x * phi(x))
void gelu_backward(const TensorView& x, const TensorView& dy, const MutableTensorView& dx);

}  // namespace amaxscope::megatron
