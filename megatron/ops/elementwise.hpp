// Sums and biases. Views CPU, contiguous, one compute dtype (f64, f32, bf16); rounded once per element.
// Error(kTensor) on a wrong view.
#pragma once

#include <cstdint>

#include "core/tensor.hpp"

namespace amaxscope::megatron {

/// y += x
void add(const TensorView& x, const MutableTensorView& y);
/// y[m, :] += bias, for y [M, N], bias [N]
void add_bias(const TensorView& bias, const MutableTensorView& y);
/// dbias[n] += sum over m of dy[m, n], in double, m ascending. dbias f32 (f64 under f64).
void bias_gradient(const TensorView& dy, const MutableTensorView& dbias);
/// y *= factor
void scale(double factor, const MutableTensorView& y);
/// y := y (1 + size r), rounded: r in [-1, 1), a pure function of the seed, the element's index and its
/// value.
void perturb(std::uint64_t seed, double size, const MutableTensorView& y);
/// Half a unit in the last place of 1: 2^-53, 2^-24, 2^-8.
double unit_roundoff(DType compute);

}  // namespace amaxscope::megatron
