#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "core/half.hpp"
#include "kernels/codec/fp4.hpp"
#include "kernels/codec/hadamard.hpp"
#include "kernels/codec/philox.hpp"
#include "kernels/cpu/nvfp4_loops.hpp"

namespace amaxscope::cpu {

namespace {

static_assert(kFp4Group == kHadamardSize);

void transpose(const float* in, float* out) {
  for (std::size_t row = 0; row < kFp4Group; ++row) {
    for (std::size_t col = 0; col < kFp4Group; ++col) out[col * kFp4Group + row] = in[row * kFp4Group + col];
  }
}

void rotate_columns(float* tile, bool through_bf16) {
  for (std::size_t col = 0; col < kFp4Group; ++col) {
    std::array<float, kFp4Group> group;
    for (std::size_t row = 0; row < kFp4Group; ++row) group[row] = tile[row * kFp4Group + col];
    rotate(group.data());
    for (std::size_t row = 0; row < kFp4Group; ++row) {
      tile[row * kFp4Group + col] = through_bf16 ? to_float(to_bf16(group[row])) : group[row];
    }
  }
}

void column_amaxes(const float* tile, std::uint32_t* keys) {
  for (std::size_t col = 0; col < kFp4Group; ++col) {
    keys[col] = 0;
    for (std::size_t row = 0; row < kFp4Group; ++row) {
      const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(tile[row * kFp4Group + col]) & 0x7FFFFFFFU;
      keys[col] = std::max(keys[col], magnitude > 0x7F800000U ? 0U : magnitude);
    }
  }
}

void make_scales(const float* values, const Nvfp4TensorLevel& level, std::uint8_t* scales,
                 float* multipliers) {
  for (std::size_t i = 0; i < kFp4Group; ++i) {
    scales[i] = encode_block_scale(values[i]);
    multipliers[i] = nvfp4_encode_multiplier(scales[i], level);
  }
}

void column_errors(const float* tile, const Fp4Candidate& candidate, float* errors) {
  for (std::size_t col = 0; col < kFp4Group; ++col) {
    errors[col] = 0.0F;
    for (std::size_t row = 0; row < kFp4Group; ++row) {
      const float value = tile[row * kFp4Group + col];
      const float code = decode_e2m1(encode_e2m1(value * candidate.multipliers[col]));
      const float decoded = code * candidate.scales[col] * candidate.amax / candidate.denominator;
      const float difference = decoded - value;
      errors[col] += candidate.squared ? difference * difference : std::abs(difference);
    }
  }
}

void draw(const Fp4Draws& draws, std::uint8_t* random) {
  for (std::size_t group = 0; group < kFp4Group; ++group) {
    const PhiloxCounter words =
        rounding_draw(draws.key, draws.call, draws.columnwise, draws.first + group * draws.step);
    for (std::size_t i = 0; i < kFp4Group; ++i) {
      random[group * kFp4Group + i] = static_cast<std::uint8_t>(words[i / 4] >> (i % 4 * 8));
    }
  }
}

void encode(const float* rows, const float* multipliers, const std::uint8_t* random, std::uint8_t* codes) {
  for (std::size_t i = 0; i < kFp4Tile; ++i) {
    const float value = rows[i] * multipliers[i / kFp4Group];
    codes[i] = random == nullptr ? encode_e2m1(value) : encode_e2m1_stochastic(value, random[i]);
  }
}

}  // namespace

constexpr Nvfp4Loops kReferenceNvfp4{.transpose = transpose,
                                     .rotate = rotate_columns,
                                     .column_amaxes = column_amaxes,
                                     .scales = make_scales,
                                     .column_errors = column_errors,
                                     .draw = draw,
                                     .encode = encode};

}  // namespace amaxscope::cpu
