// A square tile of a matrix as fp32, and amaxes of its rows and columns. Private to kernels/cpu.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "core/half.hpp"
#include "kernels/block_scale.hpp"
#include "kernels/cpu/arguments.hpp"

namespace amaxscope::cpu {

/// Magnitude as an integer that orders as the float does, 0 for NaN: a maximum of them ignores NaN, keeps Inf
/// and vectorizes.
inline std::int32_t amax_key(float value) noexcept {
  const std::int32_t magnitude = std::bit_cast<std::int32_t>(value) & 0x7FFFFFFF;
  return magnitude > 0x7F800000 ? 0 : magnitude;
}

/// kSize x kSize elements; those beyond the matrix are 0.
template <std::size_t kSize>
struct Tile {
  using Keys = std::array<std::int32_t, kSize>;
  alignas(64) std::array<std::array<float, kSize>, kSize> values;

  template <class T>
  void load(const T* x, std::int64_t stride, std::size_t rows, std::size_t cols) noexcept {
    if (rows < kSize || cols < kSize) values = {};
    for (std::size_t row = 0; row < rows; ++row) {
      const T* from = x + static_cast<std::int64_t>(row) * stride;
      for (std::size_t col = 0; col < cols; ++col) values[row][col] = to_float(from[col]);
    }
  }
  [[nodiscard]] Keys row_amaxes() const noexcept {
    Keys result;
    for (std::size_t row = 0; row < kSize; ++row) {
      std::int32_t largest = 0;
      for (std::size_t col = 0; col < kSize; ++col) largest = std::max(largest, amax_key(values[row][col]));
      result[row] = largest;
    }
    return result;
  }
  [[nodiscard]] Keys column_amaxes() const noexcept {
    Keys result{};
    for (std::size_t row = 0; row < kSize; ++row) {
      for (std::size_t col = 0; col < kSize; ++col) {
        result[col] = std::max(result[col], amax_key(values[row][col]));
      }
    }
    return result;
  }
};

/// Every entry becomes the largest: one block instead of one for each row.
template <std::size_t kSize>
void make_common(std::array<std::int32_t, kSize>& keys) noexcept {
  keys.fill(*std::ranges::max_element(keys));
}

/// action(first row, first column) for each tile of a rows x cols matrix.
template <class Action>
void for_each_block(std::int64_t rows, std::int64_t cols, std::int64_t size, Action&& action) {
  for (std::int64_t row = 0; row < rows; row += size) {
    for (std::int64_t col = 0; col < cols; col += size) action(row, col);
  }
}

/// Checks an output against its layout and zeroes its scales, so that their padding is.
inline void prepare_output(std::string_view operation, const BlockOutput& out, const BlockLayout& layout,
                           std::int64_t rows, std::int64_t cols) {
  require_shape(operation, "codes", out.codes, layout.codes_shape(rows, cols));
  require_shape(operation, "scales", out.scales, layout.scales_shape(rows, cols));
  AMAXSCOPE_CHECK(out.codes.dtype() == layout.format && out.scales.dtype() == layout.scale_format,
                  ErrorCode::kTensor, "{}: codes are {} with {} scales, wanted {} with {}", operation,
                  to_string(out.codes.dtype()), to_string(out.scales.dtype()), to_string(layout.format),
                  to_string(layout.scale_format));
  if (out.scales.bytes() != 0) std::memset(out.scales.data(), 0, out.scales.bytes());
}

/// The format of the codes, which is that of both directions. Throws when no direction is wanted.
inline DType format_of(std::string_view operation, const BlockOutputs& out) {
  AMAXSCOPE_CHECK(out.rowwise || out.columnwise, ErrorCode::kUsage, "{}: no direction is wanted", operation);
  const DType format = (out.rowwise ? out.rowwise : out.columnwise)->codes.dtype();
  AMAXSCOPE_CHECK(!out.columnwise || out.columnwise->codes.dtype() == format, ErrorCode::kTensor,
                  "{}: rowwise codes are {} and columnwise {}", operation, to_string(format),
                  to_string(out.columnwise->codes.dtype()));
  return format;
}

inline void require_multiple(std::string_view operation, const TensorView& x, std::int64_t multiple) {
  AMAXSCOPE_CHECK(x.rows() % multiple == 0 && x.cols() % multiple == 0, ErrorCode::kTensor,
                  "{}: x is {} x {}; rows and columns must be multiples of {}", operation, x.rows(), x.cols(),
                  multiple);
}

}  // namespace amaxscope::cpu
