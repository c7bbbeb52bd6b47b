// The inner loops of the errors of block-scaled codes: sixteen blocks side by side, so that every sum gets
// the elements of its block in their order and vectors are full all the same. As loops.hpp; private to
// kernels/cpu. A stretch is up to kErrorSteps elements of each block: stretch[step * kErrorLanes + lane].
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/half.hpp"

namespace amaxscope::cpu {

inline constexpr std::size_t kErrorLanes = 16;  ///< blocks side by side
inline constexpr std::size_t kErrorSteps = 64;  ///< of a stretch; four of them stay in L1
inline constexpr std::size_t kErrorStretch = kErrorLanes * kErrorSteps;

/// What the codes of the blocks are multiplied by: positive and finite, or the block's sums mean nothing.
struct LaneScales {
  using Lanes = std::array<float, kErrorLanes>;
  alignas(64) Lanes scale;
  alignas(64) Lanes limit;  ///< the largest code times the scale
  float saturates_from;     ///< of a magnitude divided by its scale
  /// An element that saturates has more than this times the scale, and most others less.
  [[nodiscard]] constexpr float suspect_from() const noexcept { return saturates_from * (1 - 0x1p-20F); }
};

/// Sums of kErrorLanes blocks, as QuantizationError has them.
struct LaneErrors {
  using Sums = std::array<double, kErrorLanes>;
  using Counts = std::array<std::uint32_t, kErrorLanes>;
  alignas(64) Sums error_squares{};
  alignas(64) Sums signal_squares{};
  alignas(64) Sums quantized_squares{};
  alignas(64) Sums products{};
  alignas(64) Sums saturated_squares{};
  alignas(64) Sums flushed_squares{};
  alignas(64) Counts overflows{};
  alignas(64) Counts saturated{};
  alignas(64) Counts underflows{};
  alignas(64) Counts largest{};  ///< |x| as bits
  /// |x - q| as bits. Inf or NaN: something in the block was not finite, and nothing here is to be read.
  alignas(64) Counts max_error{};
};

struct BlockErrorLoops {
  /// Adds `steps` elements of each block. values: of the codes, before they are scaled.
  void (*add)(const float* x, const float* values, std::size_t steps, const LaneScales& scales,
              LaneErrors& sums);
  /// out[step * kErrorLanes + lane] = rows[lane * stride + step]
  void (*interleave)(const float* rows, std::size_t stride, std::size_t steps, float* out);
  /// out[i] = x[i]
  void (*widen_bf16)(const BF16* x, std::size_t count, float* out);
  void (*widen_f16)(const F16* x, std::size_t count, float* out);
  /// values[i]: of the e2m1 code in the low (even i) or high nibble of pairs[i / 2].
  void (*decode_e2m1)(const std::uint8_t* pairs, std::size_t count, float* values);
};

extern const BlockErrorLoops kReferenceBlockErrors;

}  // namespace amaxscope::cpu
