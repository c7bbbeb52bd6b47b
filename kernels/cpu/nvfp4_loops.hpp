// The inner loops of NVFP4: sixteen groups of sixteen elements, a tile, at a time. As loops.hpp; private to
// kernels/cpu. A tile is 16 x 16 fp32, row after row, aligned to 64 bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/codec/nvfp4_scale.hpp"

namespace amaxscope::cpu {

inline constexpr std::size_t kFp4Group = 16;
inline constexpr std::size_t kFp4Tile = kFp4Group * kFp4Group;

/// What the random numbers of a tile's groups come from: rounding_draw of codec/philox.hpp for the blocks
/// first + group * step.
struct Fp4Draws {
  std::uint64_t key;
  std::uint64_t call;
  std::uint32_t columnwise;
  std::uint64_t first;
  std::uint64_t step;
};

/// Scales of the columns of a tile, and how far off decoding under them is: RN(RN(RN(value * scale) * amax) /
/// denominator) - x, squared or its magnitude.
struct Fp4Candidate {
  std::array<float, kFp4Group> multipliers;  ///< what elements are encoded with
  std::array<float, kFp4Group> scales;       ///< decoded scales
  float amax;
  float denominator;
  bool squared;
};

struct Nvfp4Loops {
  /// out[col * 16 + row] = in[row * 16 + col]
  void (*transpose)(const float* in, float* out);
  /// rotate() of codec/hadamard.hpp for every column, in place; through_bf16: and then rounded to bf16.
  void (*rotate)(float* tile, bool through_bf16);
  /// keys[col] = the largest magnitude of a column as bits, NaN counted as 0.
  void (*column_amaxes)(const float* tile, std::uint32_t* keys);
  /// For 16 values >= 0, amaxes times what a level has for them: encode_block_scale and
  /// nvfp4_encode_multiplier of it.
  void (*scales)(const float* values, const Nvfp4TensorLevel& level, std::uint8_t* scales,
                 float* multipliers);
  /// errors[col]: of the codes of a column, summed from the first row to the last.
  void (*column_errors)(const float* tile, const Fp4Candidate& candidate, float* errors);
  /// random[group * 16 + element]
  void (*draw)(const Fp4Draws& draws, std::uint8_t* random);
  /// codes[i] = e2m1(RN(rows[i] * multipliers[i / 16])), one to a byte. random: null for the nearest, else
  /// encode_e2m1_stochastic with random[i].
  void (*encode)(const float* rows, const float* multipliers, const std::uint8_t* random,
                 std::uint8_t* codes);
};

extern const Nvfp4Loops kReferenceNvfp4;

}  // namespace amaxscope::cpu
