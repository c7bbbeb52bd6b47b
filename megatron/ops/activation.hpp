// GELU (exact, with erf) and SwiGLU forward and backward, elementwise. Views CPU, contiguous, one compute
// dtype (f64, f32, bf16); calculated in f32 (f64 under f64) and rounded once to bf16. Error(kTensor) on a
// wrong view.
#pragma once

#include "core/tensor.hpp"

namespace amaxscope::megatron {

/// y = x * Phi(x)
void gelu_forward(const TensorView& x, const MutableTensorView& y);
/// dx = dy * (Phi(x) + x * phi(x))
void gelu_backward(const TensorView& x, const TensorView& dy, const MutableTensorView& dx);

/// y[m, c] = silu(gate) * up for x [M, 2C] and y [M, C], silu(z) = z / (1 + exp(-z)). Gate and up of a
/// channel lie side by side, gate = x[m, 2c] and up = x[m, 2c + 1], so that a split of the columns at even
/// ones keeps them together.
void swiglu_forward(const TensorView& x, const MutableTensorView& y);
/// dx [M, 2C] of x [M, 2C] and dy [M, C].
void swiglu_backward(const TensorView& x, const TensorView& dy, const MutableTensorView& dx);

}  // namespace amaxscope::megatron
