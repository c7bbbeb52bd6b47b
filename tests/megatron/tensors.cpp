#include "tests/megatron/tensors.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "kernels/cast.hpp"

namespace amaxscope::megatron::testing {

Tensor converted(const TensorView& tensor, DType dtype) {
  Tensor result(dtype, tensor.shape());
  convert(tensor, result);
  return result;
}

Tensor random_tensor(DType dtype, Shape shape, std::uint64_t seed, double range) {
  std::mt19937_64 generator(seed);
  Tensor wide(DType::kF64, shape);
  for (double& value : wide.values<double>()) {
    value = range * (2.0 * static_cast<double>(generator() >> 11) * 0x1p-53 - 1.0);
  }
  return converted(wide.view(), dtype);
}

std::vector<double> to_doubles(const TensorView& tensor) {
  const Tensor wide = converted(tensor, DType::kF64);
  const auto values = wide.values<double>();
  return {values.begin(), values.end()};
}

std::vector<std::uint8_t> bits(const TensorView& tensor) {
  const auto* first = static_cast<const std::uint8_t*>(tensor.data());
  return {first, first + tensor.bytes()};
}

Tensor block(const TensorView& tensor, std::int64_t row0, std::int64_t rows, std::int64_t col0,
             std::int64_t cols) {
  Tensor result(tensor.dtype(), {rows, cols});
  const std::size_t element = size_bytes(tensor.dtype(), 1);
  const auto* from = static_cast<const std::byte*>(tensor.data());
  auto* to = static_cast<std::byte*>(result.mutable_view().data());
  const std::size_t width = static_cast<std::size_t>(cols) * element;
  for (std::int64_t row = 0; row < rows; ++row, to += width) {
    std::memcpy(to, from + static_cast<std::size_t>((row0 + row) * tensor.cols() + col0) * element, width);
  }
  return result;
}

Tensor beside(const std::vector<Tensor>& parts) {
  std::int64_t cols = 0;
  for (const Tensor& part : parts) cols += part.cols();
  Tensor result(parts[0].dtype(), {parts[0].rows(), cols});
  const std::size_t element = size_bytes(result.dtype(), 1);
  auto* to = static_cast<std::byte*>(result.mutable_view().data());
  for (std::int64_t row = 0; row < result.rows(); ++row) {
    for (const Tensor& part : parts) {
      const std::size_t width = static_cast<std::size_t>(part.cols()) * element;
      std::memcpy(to,
                  static_cast<const std::byte*>(part.view().data()) + static_cast<std::size_t>(row) * width,
                  width);
      to += width;
    }
  }
  return result;
}

Tensor below(const std::vector<Tensor>& parts) {
  std::int64_t rows = 0;
  for (const Tensor& part : parts) rows += part.rows();
  Tensor result(parts[0].dtype(), {rows, parts[0].cols()});
  auto* to = static_cast<std::byte*>(result.mutable_view().data());
  for (const Tensor& part : parts) {
    std::memcpy(to, part.view().data(), part.bytes());
    to += part.bytes();
  }
  return result;
}

double weighted_sum(const Tensor& weights, const Tensor& values) {
  double sum = 0;
  for (std::size_t i = 0; i < values.values<double>().size(); ++i) {
    sum += weights.values<double>()[i] * values.values<double>()[i];
  }
  return sum;
}

double gradient_error(Tensor& x, const Tensor& gradient, const std::function<double()>& loss) {
  constexpr double kStep = 1e-5;
  const auto analytic = gradient.values<double>();
  double largest = std::numeric_limits<double>::min();
  for (const double value : analytic) largest = std::max(largest, std::abs(value));
  double worst = 0;
  for (std::size_t i = 0; i < analytic.size(); ++i) {
    double& element = x.values<double>()[i];
    const double kept = element;
    element = kept + kStep;
    const double above = loss();
    element = kept - kStep;
    const double under = loss();
    element = kept;
    const double error = std::abs((above - under) / (2 * kStep) - analytic[i]);
    const double relative = error / std::max(std::abs(analytic[i]), 1e-3 * largest);
    if (!(relative <= worst)) worst = relative;  // a NaN is kept
  }
  return worst;
}

}  // namespace amaxscope::megatron::testing
