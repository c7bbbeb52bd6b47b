#include "megatron/parameter.hpp"

#include <cmath>
#include <numbers>

#include "core/error.hpp"
#include "kernels/cast.hpp"
#include "megatron/counter_hash.hpp"

namespace amaxscope::megatron {

namespace {

DType master_dtype(const std::string& name, DType compute) {
  AMAXSCOPE_CHECK(compute == DType::kF64 || compute == DType::kF32 || compute == DType::kBF16,
                  ErrorCode::kTensor, "parameter {}: compute dtype {}; allowed are f64, f32 and bf16", name,
                  to_string(compute));
  return compute == DType::kF64 ? DType::kF64 : DType::kF32;
}

/// A standard normal number (Box and Muller); 1 - u keeps the logarithm's argument above 0.
double standard_normal(std::uint64_t key) {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform(mix(key))));
  return radius * std::cos(2.0 * std::numbers::pi * uniform(mix(~key)));
}

/// master[i] = value(i), i the flat index; f64 or f32.
template <class Value>
void fill(Tensor& master, Value&& value) {
  const auto write = [&](auto values) {
    using T = typename decltype(values)::value_type;
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<T>(value(static_cast<std::int64_t>(i)));
  };
  master.dtype() == DType::kF64 ? write(master.values<double>()) : write(master.values<float>());
}

}  // namespace

Parameter::Parameter(std::string parameter_name, Shape local_shape, DType compute_dtype, Layout tp_layout)
    : name(std::move(parameter_name)),
      master(master_dtype(name, compute_dtype), local_shape),
      compute(compute_dtype, local_shape),
      gradient(master.dtype(), local_shape),
      layout(tp_layout) {}

void Parameter::zero_gradient() {
  fill(gradient, [](std::int64_t) { return 0.0; });
}

void Parameter::refresh_compute() {
  ++version;
  if (compute.defined()) convert(master.view(), compute);
}

void initialize_normal(Parameter& parameter, std::uint64_t seed, Shape global_shape, std::int64_t row0,
                       std::int64_t col0, double std) {
  const std::int64_t rows = parameter.master.rows();
  const std::int64_t cols = parameter.master.cols();
  AMAXSCOPE_CHECK(
      row0 >= 0 && col0 >= 0 && row0 + rows <= global_shape.rows() && col0 + cols <= global_shape.cols(),
      ErrorCode::kTensor, "parameter {}: a slice {} at row {}, column {} is not within {}", parameter.name,
      to_string(parameter.master.shape()), row0, col0, to_string(global_shape));
  AMAXSCOPE_CHECK(std >= 0 && std::isfinite(std), ErrorCode::kUsage,
                  "parameter {}: standard deviation {}; it must be finite and not negative", parameter.name,
                  std);
  const std::uint64_t stream = hash_words(seed, hash_text(parameter.name));
  fill(parameter.master, [&](std::int64_t i) {
    const std::int64_t index = (row0 + i / cols) * global_shape.cols() + col0 + i % cols;
    return std * standard_normal(hash_words(stream, index));
  });
  parameter.refresh_compute();
}

void initialize_constant(Parameter& parameter, double value) {
  fill(parameter.master, [value](std::int64_t) { return value; });
  parameter.refresh_compute();
}

}  // namespace amaxscope::megatron
