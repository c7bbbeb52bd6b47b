// What quantization did to a tensor, in one pass over the original and its codes (or over the original
// alone).
#pragma once

#include <array>
#include <cstdint>

#include "kernels/block_scaled_view.hpp"
#include "kernels/error_sums.hpp"

namespace amaxscope {

/// x: f32, f16, bf16, rows may be padded. codes: e4m3 or e5m2 of the same shape. scale_inv: f32 [1], scale
/// its source. CPU.
QuantizationError quantization_error(const TensorView& x, const TensorView& codes, float scale,
                                     float scale_inv);
/// The same where all of them are, scale and scale_inv f32 [1]: on the CPU, or on a device, for which it
/// waits.
QuantizationError quantization_error(const TensorView& x, const TensorView& codes, const TensorView& scale,
                                     const TensorView& scale_inv);

/// The same for codes that were never written: x quantized to `format` (e4m3, e5m2) under `scale`. Waits for
/// the device where x is on one.
QuantizationError quantization_error_of_cast(const TensorView& x, DType format, float scale);

/// Elements of a stretch that lies in one piece whose sums are made together, and added to those before it.
inline constexpr std::int64_t kErrorBlock = 2048;
/// Adds to sums what the next rows of a tensor contribute: a tensor that is handed in by rows gives the bits
/// of the whole when all parts but the last have a multiple of kErrorBlock elements, or padded rows. CPU.
void add_quantization_error_of_cast(const TensorView& rows, DType format, float scale,
                                    QuantizationError& sums);

/// A block and the error that its quantization made.
struct WorstBlock {
  double error_squares = 0;  ///< sum (x - q)^2; 0: there is no such block
  std::int64_t row = 0;      ///< of the block's first element in [M, K]
  std::int64_t col = 0;
};
inline constexpr std::size_t kWorstBlocks = 4;

/// The same with what the blocks tell; += as above.
struct BlockQuantizationError {
  QuantizationError elements;
  std::uint64_t blocks = 0;            ///< logical ones: padding is never read
  std::uint64_t zero_blocks = 0;       ///< nothing in it but zeros and NaN
  std::uint64_t saturated_blocks = 0;  ///< with a saturated element
  std::uint64_t flushed_blocks = 0;    ///< with an underflow
  /// Smallest and largest decoded scale, of blocks that are not zero and whose scale is neither 0 nor Inf.
  /// +Inf and 0: there is none.
  float scale_min = 0;
  float scale_max = 0;
  std::array<WorstBlock, kWorstBlocks> worst = {};  ///< by error_squares, the largest first

  BlockQuantizationError() noexcept;
  BlockQuantizationError& operator+=(const BlockQuantizationError& other) noexcept;
};

/// x [.., K]: f32, f16, bf16, rows may be padded, of the codes' logical shape. Codes that are rotated (NVFP4)
/// are compared with x rotated in fp32. Elements under a scale of 0 are underflows, never saturated. CPU.
/// Throws Error(kTensor).
BlockQuantizationError quantization_error(const TensorView& x, const BlockScaledView& codes);

/// Adds what the next rows of a tensor contribute: from first_row of the tensor on, whole blocks of rows but
/// for the last. A tensor that is handed in by rows gives the bits of the whole.
void add_quantization_error(const TensorView& rows, const BlockScaledView& codes, std::int64_t first_row,
                            BlockQuantizationError& sums);

/// Codes under one scale as a single block. codes [M, K], or [K, M] when transposed; scale_inv must outlive
/// the view.
BlockScaledView as_one_block(const TensorView& codes, bool transposed, const float& scale_inv);

}  // namespace amaxscope
