// Codes of a block-scaled format (MXFP8, FP8 block scaling, NVFP4) in one direction, with everything that
// says what they stand for. What dequantizing, GEMM and statistics kernels read. Value types; views borrow.
// Layouts: TransformerEngine's mxfp8_tensor.py, float8_blockwise_tensor.py and nvfp4_tensor.py, with the
// padding of the scales always zero.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>

#include "core/tensor.hpp"
#include "kernels/codec/e8m0.hpp"
#include "kernels/codec/fp8.hpp"

namespace amaxscope {

/// How the codes and scales of one direction of a logical [M, K] matrix lie in memory.
struct BlockLayout {
  DType format = DType::kE4M3;        ///< of the codes: e4m3, e5m2 or e2m1
  DType scale_format = DType::kE8M0;  ///< e8m0 (MXFP8), f32 (FP8 block), e4m3 (NVFP4)
  /// Elements of [M, K] that have one scale. Blocks at the lower and right edge may be cut.
  std::int64_t block_rows = 1;
  std::int64_t block_cols = 32;
  /// Elements of [M, K] that one *stored* scale is about: the block, or a part of it where a two-dimensional
  /// block stores its scale again for each row (MXFP8 and NVFP4 weights).
  std::int64_t scale_rows = 1;
  std::int64_t scale_cols = 32;
  bool codes_transposed = false;   ///< codes are [K, M]
  bool scales_transposed = false;  ///< the stored scales run along K first
  /// Extents of the stored array of scales are rounded up to multiples of these.
  std::int64_t pad_rows = 1;
  std::int64_t pad_cols = 1;

  [[nodiscard]] static constexpr std::int64_t up(std::int64_t extent, std::int64_t multiple) noexcept {
    return (extent + multiple - 1) / multiple * multiple;
  }
  /// Shape of the codes of a rows x cols matrix, in elements (two e2m1 to a byte).
  [[nodiscard]] Shape codes_shape(std::int64_t rows, std::int64_t cols) const {
    return codes_transposed ? Shape{cols, rows} : Shape{rows, cols};
  }
  /// Shape of its scales, padding included.
  [[nodiscard]] Shape scales_shape(std::int64_t rows, std::int64_t cols) const {
    const std::int64_t down = (rows + scale_rows - 1) / scale_rows;
    const std::int64_t across = (cols + scale_cols - 1) / scale_cols;
    return {up(scales_transposed ? across : down, pad_rows), up(scales_transposed ? down : across, pad_cols)};
  }
  friend bool operator==(const BlockLayout&, const BlockLayout&) = default;
};

/// The second level of NVFP4's scales: a block's scale byte s stands for RN(RN(s * amax) * factor).
struct TensorScale {
  float amax = 0.0F;    ///< of the whole tensor, over the ranks that share it
  float factor = 0.0F;  ///< fp32(1 / (6 * 448)), or fp32(1 / (6 * 256)) of "four over six" with 256
  friend bool operator==(const TensorScale&, const TensorScale&) = default;
};

struct BlockScaledView {
  TensorView codes;   ///< layout.codes_shape()
  TensorView scales;  ///< layout.scales_shape(), u8 codes or f32
  BlockLayout layout;
  std::optional<TensorScale> tensor_scale;  ///< NVFP4 only
  /// Of codes on a device with a tensor_scale, whose amax is not read then: bits, u32 [1] beside the codes.
  std::optional<TensorView> device_amax = std::nullopt;
  /// The codes stand for the random Hadamard transform along M, in groups of 16, and not for the matrix
  /// itself (NVFP4, columnwise). It cancels in a product of two rotated factors.
  bool rotated = false;

  [[nodiscard]] std::int64_t rows() const noexcept {
    return layout.codes_transposed ? codes.cols() : codes.rows();
  }
  [[nodiscard]] std::int64_t cols() const noexcept {
    return layout.codes_transposed ? codes.rows() : codes.cols();
  }
  /// Logical blocks along M, along K and in all; an empty matrix has none.
  [[nodiscard]] std::int64_t blocks_down() const noexcept {
    return (rows() + layout.block_rows - 1) / layout.block_rows;
  }
  [[nodiscard]] std::int64_t blocks_across() const noexcept {
    return (cols() + layout.block_cols - 1) / layout.block_cols;
  }
  [[nodiscard]] std::int64_t block_count() const noexcept { return blocks_down() * blocks_across(); }

  /// Where the scale of the element (row, col) of [M, K] lies in the stored array.
  [[nodiscard]] std::int64_t scale_index(std::int64_t row, std::int64_t col) const noexcept {
    const std::int64_t down = row / layout.scale_rows;
    const std::int64_t across = col / layout.scale_cols;
    const std::int64_t stride = scales.cols();
    return layout.scales_transposed ? across * stride + down : down * stride + across;
  }
  /// The stored scale at an index of scale_index, decoded: what codes under it are multiplied by.
  [[nodiscard]] float stored_scale(std::int64_t index) const noexcept {
    if (layout.scale_format == DType::kF32) return static_cast<const float*>(scales.data())[index];
    const std::uint8_t byte = static_cast<const std::uint8_t*>(scales.data())[index];
    if (layout.scale_format == DType::kE8M0) return decode_e8m0(byte);
    const float first_level = decode_fp8<DType::kE4M3>(byte);
    return tensor_scale ? (first_level * tensor_scale->amax) * tensor_scale->factor : first_level;
  }
  /// The decoded scale of the logical block (i, j): i counts along M, j along K.
  [[nodiscard]] float scale(std::int64_t i, std::int64_t j) const noexcept {
    return stored_scale(scale_index(i * layout.block_rows, j * layout.block_cols));
  }
  /// The code of the element (row, col) of [M, K], e2m1 in the low four bits.
  [[nodiscard]] std::uint8_t code(std::int64_t row, std::int64_t col) const noexcept {
    const std::int64_t index = layout.codes_transposed ? col * codes.cols() + row : row * codes.cols() + col;
    const auto* bytes = static_cast<const std::uint8_t*>(codes.data());
    if (layout.format != DType::kE2M1) return bytes[index];
    return static_cast<std::uint8_t>((bytes[index / 2] >> (index % 2 * 4)) & 0xFU);
  }
};

/// Throws Error(kTensor) when the parts do not fit each other; `what` names the view in the message.
void require_valid(const BlockScaledView& view, std::string_view what);

}  // namespace amaxscope
