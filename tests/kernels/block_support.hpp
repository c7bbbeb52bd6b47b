// What the tests of the block-scaled kernels share: data that is hard to scale, results with their memory,
// and decoding by tables of their own.
#pragma once

#include <cmath>
#include <cstring>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/block_scale.hpp"
#include "kernels/dequantize.hpp"
#include "tests/kernels/minifloat_grid.hpp"
#include "tests/kernels/values.hpp"

namespace amaxscope::test {

/// Codes and scales of one direction. The memory starts out as 0xFF everywhere, so that what a kernel leaves
/// out shows.
struct Quantized {
  Tensor codes;
  Tensor scales;
  BlockLayout layout;
  std::optional<TensorScale> tensor_scale = std::nullopt;
  bool rotated = false;

  Quantized(const BlockLayout& of, const TensorView& x)
      : codes(of.format, of.codes_shape(x.rows(), x.cols())),
        scales(of.scale_format, of.scales_shape(x.rows(), x.cols())),
        layout(of) {
    for (Tensor* tensor : {&codes, &scales}) {
      if (tensor->bytes() != 0) std::memset(tensor->mutable_view().data(), 0xFF, tensor->bytes());
    }
  }
  [[nodiscard]] BlockOutput output() { return {codes, scales}; }
  [[nodiscard]] BlockScaledView view() const {
    return {
        .codes = codes, .scales = scales, .layout = layout, .tensor_scale = tensor_scale, .rotated = rotated};
  }
  /// The stored byte or bits of a scale.
  [[nodiscard]] std::uint32_t scale_bits(std::int64_t index) const {
    if (layout.scale_format == DType::kF32)
      return bits_of(scales.values<float>()[static_cast<std::size_t>(index)]);
    return scales.values<std::uint8_t>()[static_cast<std::size_t>(index)];
  }
};

struct Both {
  Quantized rowwise;
  Quantized columnwise;
};

inline MinifloatGrid grid_of(DType format) {
  if (format == DType::kE4M3) return MinifloatGrid::e4m3();
  return format == DType::kE5M2 ? MinifloatGrid::e5m2() : MinifloatGrid::e2m1();
}

/// The value of a finite code by the test's own table.
inline double value_of_code(DType format, std::uint8_t code) {
  const MinifloatGrid grid = grid_of(format);
  const unsigned sign = format == DType::kE2M1 ? 0x8U : 0x80U;
  const double magnitude = grid.values().at(code & (sign - 1U));
  return (code & sign) != 0 ? -magnitude : magnitude;
}

/// Every block another magnitude, from fp32 subnormals to near FLT_MAX, with zeros, NaN and Inf strewn in.
inline std::vector<float> hard_values(std::int64_t rows, std::int64_t cols, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> exponent(-146, 120);
  std::uniform_int_distribution<int> special(0, 999);
  std::vector<float> values(static_cast<std::size_t>(rows * cols));
  int scale = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i % 16 == 0) scale = special(engine) < 300 ? exponent(engine) : 0;
    values[i] = std::ldexp(normal(engine), scale);
    const int kind = special(engine);
    if (kind < 20) values[i] = kind % 2 == 0 ? 0.0F : -0.0F;
    if (kind == 20) values[i] = kNaN;
    if (kind == 21) values[i] = kInf;
    if (kind == 22) values[i] = -kInf;
  }
  for (std::size_t i = 0; i < std::min<std::size_t>(values.size(), 64); ++i) values[i] = 0.0F;
  return values;
}

inline Tensor matrix_of(const std::vector<float>& values, std::int64_t rows, std::int64_t cols) {
  return Tensor::of<float>(std::span<const float>(values), Shape{rows, cols});
}

inline Tensor transpose_of(const Tensor& x) {
  Tensor result(x.dtype(), {x.cols(), x.rows()});
  transpose(x, result);
  return result;
}

inline float at(const Tensor& x, std::int64_t row, std::int64_t col) {
  return x.values<float>()[static_cast<std::size_t>(row * x.cols() + col)];
}

/// Largest magnitude of a part of a matrix, NaN left out.
inline float amax_of(const Tensor& x, std::int64_t row, std::int64_t rows, std::int64_t col,
                     std::int64_t cols) {
  float largest = 0;
  for (std::int64_t i = row; i < std::min(row + rows, x.rows()); ++i) {
    for (std::int64_t j = col; j < std::min(col + cols, x.cols()); ++j) {
      const float magnitude = std::abs(at(x, i, j));
      if (magnitude > largest) largest = magnitude;
    }
  }
  return largest;
}

/// amax_of every block of down x across elements, row by row.
class Amaxes {
 public:
  Amaxes(const Tensor& x, std::int64_t down, std::int64_t across)
      : down_(down), across_(across), stride_((x.cols() + across - 1) / across) {
    for (std::int64_t row = 0; row < x.rows(); row += down) {
      for (std::int64_t col = 0; col < x.cols(); col += across) {
        amaxes_.push_back(amax_of(x, row, down, col, across));
      }
    }
  }
  /// Of the block that an element is in.
  [[nodiscard]] float of(std::int64_t row, std::int64_t col) const {
    return amaxes_[static_cast<std::size_t>(row / down_ * stride_ + col / across_)];
  }

 private:
  std::int64_t down_;
  std::int64_t across_;
  std::int64_t stride_;
  std::vector<float> amaxes_;
};

}  // namespace amaxscope::test
