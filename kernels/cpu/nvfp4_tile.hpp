// NVFP4's arithmetic for a tile of sixteen groups, and where the result is stored. Private to kernels/cpu.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/block_scale.hpp"
#include "kernels/codec/fp4.hpp"
#include "kernels/codec/nvfp4_scale.hpp"
#include "kernels/cpu/block_tile.hpp"
#include "kernels/cpu/loops.hpp"

namespace amaxscope::cpu::nvfp4 {

inline constexpr auto kSize = static_cast<std::size_t>(kNvfp4Block);
static_assert(kSize == kFp4Group);

using Tile = cpu::Tile<kSize>;                     ///< 16 groups, one in each row
using Group = std::array<float, kSize>;            ///< the elements of a one-dimensional block
using Keys = std::array<std::uint32_t, kSize>;     ///< an amax for each group, as bits
using Codes = std::array<std::uint8_t, kFp4Tile>;  ///< of a tile, one to a byte

/// Scales of a tile's groups and what their elements are multiplied by under them.
struct Scales {
  std::array<std::uint8_t, kSize> bytes;
  Group multipliers;
};

class Encoder {
 public:
  Encoder(const Nvfp4Cast& cast, float amax, bool columnwise)
      : loops_(*loops().nvfp4),
        cast_(cast),
        amax_(amax),
        columnwise_(columnwise ? 1U : 0U),
        level_(nvfp4_tensor_level(amax, cast.scale_max)) {}

  /// The one candidate for the largest value of each block, or the first of two.
  [[nodiscard]] Scales candidates(const Keys& amaxes) const {
    const bool single = cast_.four_over_six == FourOverSix::kOff;
    return scales_of(amaxes, [&](float amax) {
      return single ? amax * level_.block_factor : amax / kFp4Max * level_.encode;
    });
  }
  /// The other: its largest value becomes 4, not 6.
  [[nodiscard]] Scales wider(const Keys& amaxes) const {
    return scales_of(amaxes, [&](float amax) { return amax / kFp4Max * level_.encode * 1.5F; });
  }

  /// Codes of a tile. Its first group is block `first` in the order of the codes, the next are `step` further
  /// each: for the random numbers.
  void encode(const Tile& tile, const Scales& by, std::uint64_t first, std::uint64_t step,
              Codes& codes) const {
    alignas(64) Codes random;
    if (cast_.stochastic) {
      loops_.draw({cast_.stochastic->key, cast_.stochastic->call, columnwise_, first, step}, random.data());
    }
    loops_.encode(tile.values.front().data(), by.multipliers.data(),
                  cast_.stochastic ? random.data() : nullptr, codes.data());
  }

  /// Sums over the elements of each group of what decoding under a candidate is off by; columns: of a tile
  /// whose columns are the groups.
  [[nodiscard]] Group errors(const Tile& columns, const Scales& scales) const {
    cpu::Fp4Candidate candidate{.multipliers = scales.multipliers,
                                .scales = {},
                                .amax = amax_,
                                .denominator = kFp4Max * cast_.scale_max,
                                .squared = cast_.four_over_six == FourOverSix::kSquaredError};
    for (std::size_t i = 0; i < kSize; ++i) candidate.scales[i] = decode_fp8<DType::kE4M3>(scales.bytes[i]);
    Group result;
    loops_.column_errors(columns.values.front().data(), candidate, result.data());
    return result;
  }

 private:
  /// value(amax): what the byte of a block's scale is made of.
  template <class Value>
  [[nodiscard]] Scales scales_of(const Keys& amaxes, Value&& value) const {
    Group values;
    for (std::size_t i = 0; i < kSize; ++i) values[i] = value(std::bit_cast<float>(amaxes[i]));
    Scales scales;
    loops_.scales(values.data(), level_, scales.bytes.data(), scales.multipliers.data());
    return scales;
  }

  const Nvfp4Loops& loops_;
  const Nvfp4Cast& cast_;
  float amax_;
  std::uint32_t columnwise_;
  Nvfp4TensorLevel level_;
};

/// Writes tiles where a layout has them: their codes are rows `row` to row + 15 of the stored codes from
/// column `col` on, and their scales are at (row.., col / 16) of the stored scales.
class Writer {
 public:
  explicit Writer(const BlockOutput& out)
      : codes_(static_cast<std::uint8_t*>(out.codes.data())),
        scales_(static_cast<std::uint8_t*>(out.scales.data())),
        cols_(out.codes.cols()),
        scale_stride_(out.scales.cols()) {}

  /// The index of a block in the order of the codes, and its distance from the one a row below.
  [[nodiscard]] std::uint64_t block(std::int64_t row, std::int64_t col) const {
    return static_cast<std::uint64_t>((row * cols_ + col) / kNvfp4Block);
  }
  [[nodiscard]] std::uint64_t step() const { return static_cast<std::uint64_t>(cols_ / kNvfp4Block); }

  void write(std::int64_t row, std::int64_t col, const Codes& codes, const Scales& scales) const {
    Codes packed;  // half of it
    for (std::size_t i = 0; i < codes.size() / 2; ++i) packed[i] = pack_e2m1(codes[2 * i], codes[2 * i + 1]);
    for (std::size_t i = 0; i < kSize; ++i) {
      const std::int64_t at = row + static_cast<std::int64_t>(i);
      std::copy_n(packed.data() + i * kSize / 2, kSize / 2, codes_ + (at * cols_ + col) / 2);
      scales_[at * scale_stride_ + col / kNvfp4Block] = scales.bytes[i];
    }
  }

 private:
  std::uint8_t* codes_;
  std::uint8_t* scales_;
  std::int64_t cols_;
  std::int64_t scale_stride_;
};

}  // namespace amaxscope::cpu::nvfp4
