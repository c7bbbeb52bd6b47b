// Scales in the order of cuBLASLt by the formula of TransformerEngine's mxfp8/swizzle.cuh.
#pragma once

#include <cstring>

#include "kernels/block_scaled_view.hpp"

namespace amaxscope::test {

/// Scales that are all different in a neighbourhood, and never 0; what pads them in memory is not 0 either.
inline Tensor numbered_scales(const BlockLayout& layout, std::int64_t rows, std::int64_t cols) {
  Tensor scales(layout.scale_format, layout.scales_shape(rows, cols));
  auto* bytes = static_cast<std::uint8_t*>(scales.mutable_view().data());
  for (std::int64_t i = 0; i < scales.numel(); ++i) bytes[i] = static_cast<std::uint8_t>(1 + i % 251);
  return scales;
}

/// Of a rows x cols matrix, whose scales of one byte run along K, or along M in a columnwise layout.
inline Tensor tiled(const BlockLayout& layout, const Tensor& scales, std::int64_t rows, std::int64_t cols) {
  const bool along_rows = layout.scale_rows > 1;
  const std::int64_t outer = along_rows ? cols : rows;
  const std::int64_t inner = along_rows ? rows / layout.scale_rows : cols / layout.scale_cols;
  const std::int64_t tiles = (inner + 3) / 4;
  Tensor result(DType::kU8, {(outer + 127) / 128 * tiles * 512});
  auto* const to = static_cast<std::uint8_t*>(result.mutable_view().data());
  std::memset(to, 0, result.bytes());
  for (std::int64_t i = 0; i < outer; ++i) {
    for (std::int64_t j = 0; j < inner; ++j) {
      const std::int64_t at = ((i / 128) * tiles + j / 4) * 512 + i % 32 * 16 + i % 128 / 32 * 4 + j % 4;
      const std::int64_t from =
          along_rows != layout.scales_transposed ? j * scales.cols() + i : i * scales.cols() + j;
      to[at] = static_cast<const std::uint8_t*>(scales.view().data())[from];
    }
  }
  return result;
}

}  // namespace amaxscope::test
