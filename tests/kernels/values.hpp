// Small helpers of the kernel tests: bit patterns, deterministic data, padded views.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "core/tensor.hpp"
#include "kernels/cast.hpp"

namespace amaxscope::test {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kDenormal = std::numeric_limits<float>::denorm_min();

inline std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }
inline std::uint64_t bits_of(double x) { return std::bit_cast<std::uint64_t>(x); }
inline float from_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }

inline Tensor scalar(float value) { return Tensor::of<float>({value}, {1}); }

/// Normal values with a few zeros and magnitudes far apart: what a gradient looks like.
inline std::vector<float> sample(std::int64_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> exponent(-12, 3);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = i % 17 == 5 ? 0.0F : std::ldexp(normal(engine), exponent(engine));
  }
  return values;
}

inline Tensor sample_tensor(Shape shape, unsigned seed) {
  return Tensor::of<float>(std::span<const float>(sample(shape.numel(), seed)), shape);
}

inline Tensor converted(const TensorView& x, DType dtype) {
  Tensor result(dtype, x.shape());
  convert(x, result);
  return result;
}

/// A matrix in a buffer whose rows are longer, with a filling between them that no kernel may read.
template <class T>
class PaddedMatrix {
 public:
  PaddedMatrix(const std::vector<T>& values, Shape shape, std::int64_t stride, T filling)
      : buffer_(static_cast<std::size_t>(shape.rows() * stride), filling), shape_(shape), stride_(stride) {
    for (std::int64_t row = 0; row < shape.rows(); ++row) {
      for (std::int64_t col = 0; col < shape.cols(); ++col) {
        buffer_[static_cast<std::size_t>(row * stride + col)] =
            values[static_cast<std::size_t>(row * shape.cols() + col)];
      }
    }
  }
  [[nodiscard]] TensorView view() const {
    return {buffer_.data(), DTypeOf<T>::value, shape_, {}, {}, stride_};
  }

 private:
  std::vector<T> buffer_;
  Shape shape_;
  std::int64_t stride_;
};

}  // namespace amaxscope::test
