// Tensors for tests: random ones, their parts, their bits, and finite differences.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/tensor.hpp"

namespace amaxscope::megatron::testing {

/// Uniform in [-range, range), rounded to the dtype (f64, f32 or bf16); the same for the same seed.
Tensor random_tensor(DType dtype, Shape shape, std::uint64_t seed, double range = 1.0);

/// The values, exactly.
std::vector<double> to_doubles(const TensorView& tensor);
/// The memory, to compare bit for bit (-0 differs from +0, a NaN equals itself).
std::vector<std::uint8_t> bits(const TensorView& tensor);
/// The values rounded to another of these types, by its own arithmetic on each element.
Tensor converted(const TensorView& tensor, DType dtype);

/// A copy of the block [rows, cols] that starts at row0, col0 of the matrix.
Tensor block(const TensorView& tensor, std::int64_t row0, std::int64_t rows, std::int64_t col0,
             std::int64_t cols);
/// The matrices side by side.
Tensor beside(const std::vector<Tensor>& parts);
/// The matrices one below the other.
Tensor below(const std::vector<Tensor>& parts);

/// sum of weights[i] * values[i]: a loss whose gradient with respect to `values` is `weights`.
double weighted_sum(const Tensor& weights, const Tensor& values);

/// Largest relative difference between `gradient` and the central differences of loss() by each element of x
/// (f64). Elements below a thousandth of the largest are measured against that. x is left as it was.
double gradient_error(Tensor& x, const Tensor& gradient, const std::function<double()>& loss);

}  // namespace amaxscope::megatron::testing
