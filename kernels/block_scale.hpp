// High precision to block-scaled codes: MXFP8, FP8 block scaling and NVFP4, one or both directions in one
// pass. Formulas and layouts: TransformerEngine's quantize_mxfp8.cuh, quantize_transpose_*_blockwise.cu and
// cast/nvfp4; padding of the scales is always written as zero.
// x [M, K]: f32, f16 or bf16, contiguous; may be empty. On a device asynchronous on its stream. Nothing is
// allocated on the heap. Throws
// Error(kTensor) for types and shapes that do not fit.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "core/tensor.hpp"
#include "kernels/block_scaled_view.hpp"

namespace amaxscope {

inline constexpr std::int64_t kMxfp8Block = 32;  ///< M and K must be multiples
inline constexpr std::int64_t kFp8Block = 128;   ///< any M and K
inline constexpr std::int64_t kNvfp4Block = 16;  ///< M and K must be multiples

/// Where codes and scales of one direction go, in the shapes of its layout. codes.dtype() is the format.
struct BlockOutput {
  MutableTensorView codes;
  MutableTensorView scales;
};
struct BlockOutputs {
  std::optional<BlockOutput> rowwise = std::nullopt;
  std::optional<BlockOutput> columnwise = std::nullopt;
};

/// Scales for 32 elements along K (rowwise) or M (columnwise), or for 32 x 32 and stored again for each of 32
/// rows or columns. Columnwise codes are not transposed.
BlockLayout mxfp8_layout(DType format, bool columnwise, bool two_dimensional);
/// For each block: b = the smallest power of two that is at least RN(amax * RN(1 / fp8_max)), as E8M0;
/// code = fp8(RN(x * 2^(127-b))). A block of zeros or NaNs has b = 0 (2^-127), one with Inf b = 254.
void quantize_mxfp8(const TensorView& x, bool two_dimensional, const BlockOutputs& out);

struct Fp8BlockOptions {
  bool power_of_two = true;  ///< scales rounded down to powers of two
  float epsilon = 0.0F;      ///< amaxes below are raised to it
};
/// Scales for 128 elements along K (rowwise, stored transposed) or M (columnwise), or for 128 x 128.
/// Columnwise codes are transposed, [K, M].
BlockLayout fp8_block_layout(DType format, bool columnwise, bool two_dimensional);
/// For each block, cut at the edges: scale = scale_from_amax (kernels/codec/scale.hpp), an overflow is the
/// largest finite value of x's type; code = fp8(RN(x * scale)); stored is RN(1 / scale), 1 for a zero block.
void quantize_fp8_blocks(const TensorView& x, const Fp8BlockOptions& options, bool two_dimensional,
                         const BlockOutputs& out);

/// Scales for 16 elements along K (rowwise) or M (columnwise), or for 16 x 16 and stored again for each row
/// of codes. Columnwise codes are transposed.
BlockLayout nvfp4_layout(bool columnwise, bool two_dimensional);

/// amax bits of what the rowwise and the columnwise codes are made of: max |x|, and with `rotate` max |R(x)|
/// where R is the rotation along M that quantize_nvfp4 does. CPU.
std::array<std::uint32_t, 2> nvfp4_amaxes(const TensorView& x, bool rowwise, bool columnwise, bool rotate);

enum class FourOverSix { kOff, kAbsoluteError, kSquaredError };

/// The random numbers of one quantization. The 16 elements of a block draw the 16 bytes of one Philox4x32-10
/// (kernels/codec/philox.hpp) with
///   key     = {low, high word of `key`}
///   counter = {low, high word of the block's index, low word of `call`, high word of `call` * 2 +
///   columnwise}
/// where blocks are counted in the order in which their codes are stored; element i takes byte i % 4, from
/// the least significant, of word i / 4.
struct StochasticRounding {
  std::uint64_t key = 0;
  std::uint64_t call = 0;  ///< below 2^63
};

struct Nvfp4Cast {
  bool two_dimensional = false;
  /// Columnwise codes of the rotated matrix: groups of 16 along M times diag(s) H / 4 (kernels/codec/
  /// hadamard.hpp), in fp32; for bf16 the result is rounded to bf16, for f32 and f16 it is not.
  bool rotate_columnwise = false;
  std::optional<StochasticRounding> stochastic = std::nullopt;  ///< else nearest, ties to even
  FourOverSix four_over_six = FourOverSix::kOff;
  /// What the largest block scale is for, 448 or, with four over six, 256.
  float scale_max = 448.0F;
  float rowwise_amax = 0.0F;     ///< of the whole tensor, over all ranks that share it; not NaN
  float columnwise_amax = 0.0F;  ///< the same of the rotated tensor
};
/// Throws Error(kUsage) when options of a cast do not go together.
void require_combination(std::string_view operation, const Nvfp4Cast& cast);
/// The second level of the scales of codes made with this amax.
TensorScale nvfp4_tensor_scale(float amax, float scale_max);
/// Two levels of scales, see kernels/codec/nvfp4_scale.hpp; code = e2m1(RN(x * e)), nearest or stochastic.
/// With two-dimensional blocks the columnwise codes are the transpose of the rowwise ones, also of the
/// stochastic ones (drawn as rowwise). CPU.
void quantize_nvfp4(const TensorView& x, const Nvfp4Cast& cast, const BlockOutputs& out);

/// Both for tensors wherever they are, with the amaxes where x is: u32 [2], of both directions; those of
/// `cast` are not read.
void nvfp4_amaxes(const TensorView& x, bool rotate, const MutableTensorView& out);
void quantize_nvfp4(const TensorView& x, const Nvfp4Cast& cast, const TensorView& amaxes,
                    const BlockOutputs& out);

}  // namespace amaxscope
