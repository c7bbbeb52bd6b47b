// The loops of NVFP4 on every instruction set of this machine, as loops_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/cpu/nvfp4_loops.hpp"
#include "tests/kernels/loops_support.hpp"

namespace amaxscope::test {
namespace {

using Fp4Values = std::array<float, cpu::kFp4Tile>;
using Fp4Codes = std::array<std::uint8_t, cpu::kFp4Tile>;

Fp4Values tile_of(unsigned seed, bool specials) {
  alignas(64) Fp4Values tile;
  std::ranges::copy(mixture<float>(tile.size(), seed, specials), tile.begin());
  return tile;
}

/// action(loops for NVFP4 of one instruction set, the reference's).
template <class Action>
void for_each_nvfp4(Action&& action) {
  for_each_target(
      [&](const cpu::Loops& loops, const cpu::Loops& reference) { action(*loops.nvfp4, *reference.nvfp4); });
}

TEST(Nvfp4Loops, TilesAreTurnedAndTheirColumnsMeasuredAsTheReferenceDoes) {
  for_each_nvfp4([](const cpu::Nvfp4Loops& loops, const cpu::Nvfp4Loops& reference) {
    for (unsigned seed = 0; seed < 20; ++seed) {
      alignas(64) const Fp4Values tile = tile_of(seed, seed % 2 == 1);
      alignas(64) Fp4Values a;
      alignas(64) Fp4Values b;
      loops.transpose(tile.data(), a.data());
      reference.transpose(tile.data(), b.data());
      ASSERT_EQ(std::memcmp(a.data(), b.data(), sizeof(a)), 0);
      std::array<std::uint32_t, cpu::kFp4Group> keys;
      std::array<std::uint32_t, cpu::kFp4Group> expected;
      loops.column_amaxes(tile.data(), keys.data());
      reference.column_amaxes(tile.data(), expected.data());
      ASSERT_EQ(keys, expected);
    }
  });
}

TEST(Nvfp4Loops, RotatesAsTheReference) {
  for_each_nvfp4([](const cpu::Nvfp4Loops& loops, const cpu::Nvfp4Loops& reference) {
    for (const bool through_bf16 : {false, true}) {
      for (unsigned seed = 0; seed < 20; ++seed) {
        alignas(64) Fp4Values a = tile_of(seed, seed % 2 == 1);
        alignas(64) Fp4Values b = a;
        loops.rotate(a.data(), through_bf16);
        reference.rotate(b.data(), through_bf16);
        for (std::size_t i = 0; i < a.size(); ++i) {  // a sum of two NaN is either of them
          ASSERT_TRUE(bits_of(a[i]) == bits_of(b[i]) || (a[i] != a[i] && b[i] != b[i])) << i;
        }
      }
    }
  });
}

TEST(Nvfp4Loops, ScalesAreThoseOfTheReference) {
  for_each_nvfp4([](const cpu::Nvfp4Loops& loops, const cpu::Nvfp4Loops& reference) {
    for (const float amax : {0.0F, 1e-44F, 1e-20F, 0.3F, 448.0F, 6.0F * 448, 3e38F, kInf}) {
      const Nvfp4TensorLevel level = nvfp4_tensor_level(amax, 448.0F);
      for (std::uint32_t first = 0; first < 0x7F800000U; first += 0x3F123U) {
        std::array<float, cpu::kFp4Group> values;
        for (std::uint32_t i = 0; i < values.size(); ++i) {
          values[i] = from_bits(std::min(first + i * 0x3F1U, 0x7F800000U)) * level.block_factor;
        }
        if (first == 0) values[3] = kInf;
        std::array<std::uint8_t, cpu::kFp4Group> a_scales;
        std::array<std::uint8_t, cpu::kFp4Group> b_scales;
        std::array<float, cpu::kFp4Group> a;
        std::array<float, cpu::kFp4Group> b;
        loops.scales(values.data(), level, a_scales.data(), a.data());
        reference.scales(values.data(), level, b_scales.data(), b.data());
        ASSERT_EQ(a_scales, b_scales) << amax << ' ' << first;
        ASSERT_EQ(std::memcmp(a.data(), b.data(), sizeof(a)), 0) << amax << ' ' << first;
      }
    }
  });
}

TEST(Nvfp4Loops, ErrorsOfCandidatesAreThoseOfTheReference) {
  for_each_nvfp4([](const cpu::Nvfp4Loops& loops, const cpu::Nvfp4Loops& reference) {
    for (unsigned seed = 0; seed < 60; ++seed) {
      alignas(64) const Fp4Values tile = tile_of(seed, seed % 2 == 1);
      cpu::Fp4Candidate candidate{.multipliers = {},
                                  .scales = {},
                                  .amax = seed % 7 == 0 ? kInf : 3.7F,
                                  .denominator = 6.0F * 256,
                                  .squared = seed % 3 == 0};
      for (std::size_t i = 0; i < cpu::kFp4Group; ++i) {
        candidate.multipliers[i] = std::ldexp(1.37F, static_cast<int>(i) - 8);
        candidate.scales[i] = i == 5 ? 0.0F : std::ldexp(1.25F, 8 - static_cast<int>(i));
      }
      std::array<float, cpu::kFp4Group> a;
      std::array<float, cpu::kFp4Group> b;
      loops.column_errors(tile.data(), candidate, a.data());
      reference.column_errors(tile.data(), candidate, b.data());
      for (std::size_t i = 0; i < a.size(); ++i) {  // which NaN a sum is of two is not said
        ASSERT_TRUE(bits_of(a[i]) == bits_of(b[i]) || (std::isnan(a[i]) && std::isnan(b[i])))
            << seed << ' ' << i;
      }
    }
  });
}

TEST(Nvfp4Loops, DrawsAreThoseOfTheReference) {
  for_each_nvfp4([](const cpu::Nvfp4Loops& loops, const cpu::Nvfp4Loops& reference) {
    for (const std::uint64_t first : {0ULL, 7ULL, 0xFFFFFFFAULL, 0x123456789ABCDEFULL}) {
      for (const std::uint64_t step : {1ULL, 256ULL, 0x10000001ULL}) {
        for (const std::uint32_t columnwise : {0U, 1U}) {
          const cpu::Fp4Draws draws{0x8899AABBCCDDEEFFULL, 0x7000000180000003ULL, columnwise, first, step};
          Fp4Codes a;
          Fp4Codes b;
          loops.draw(draws, a.data());
          reference.draw(draws, b.data());
          ASSERT_EQ(a, b) << first << ' ' << step;
        }
      }
    }
  });
}

/// All upper halves of fp32, with lower halves next to ties, to nearest and with any random byte.
TEST(Nvfp4Loops, CodesAreThoseOfTheReference) {
  for_each_nvfp4([](const cpu::Nvfp4Loops& loops, const cpu::Nvfp4Loops& reference) {
    for (const std::uint32_t lower : {0U, 1U, 0x8000U, 0xFFFFU}) {
      const std::vector<float> x = all_upper_halves<float>(lower);
      for (std::size_t first = 0; first < x.size(); first += cpu::kFp4Tile) {
        alignas(64) Fp4Values tile;
        std::copy_n(x.begin() + static_cast<std::ptrdiff_t>(first), tile.size(), tile.begin());
        std::array<float, cpu::kFp4Group> multipliers;
        for (std::size_t i = 0; i < multipliers.size(); ++i) {
          multipliers[i] = i < 4 ? 1.0F : std::ldexp(1.37F, static_cast<int>(first / 997 + i) % 40 - 20);
        }
        Fp4Codes random;
        for (std::size_t i = 0; i < random.size(); ++i)
          random[i] = static_cast<std::uint8_t>(i * 37 + first / 256);
        for (const bool stochastic : {false, true}) {
          const std::uint8_t* bytes = stochastic ? random.data() : nullptr;
          Fp4Codes a;
          Fp4Codes b;
          loops.encode(tile.data(), multipliers.data(), bytes, a.data());
          reference.encode(tile.data(), multipliers.data(), bytes, b.data());
          ASSERT_EQ(a, b) << first;
        }
      }
    }
  });
}

}  // namespace
}  // namespace amaxscope::test
