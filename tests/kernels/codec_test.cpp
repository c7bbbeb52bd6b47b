#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>

#include "core/error.hpp"
#include "kernels/codec/e8m0.hpp"
#include "kernels/codec/fp4.hpp"
#include "kernels/codec/fp8.hpp"
#include "kernels/codec/scale.hpp"
#include "tests/kernels/minifloat_grid.hpp"
#include "tests/kernels/values.hpp"

namespace amaxscope::test {
namespace {

constexpr auto encode_e4m3 = encode_fp8<DType::kE4M3>;
constexpr auto encode_e5m2 = encode_fp8<DType::kE5M2>;

struct Golden {
  float value;
  std::uint8_t code;
};

// By the codes alone: the largest finite one, the steps between them, and the value after the last.
TEST(CodeGrids, TheTableOfConstants) {
  const CodeGrid e4m3 = code_grid(DType::kE4M3);
  EXPECT_EQ(e4m3.max, 1.75F * 256.0F) << "0x7E: S.1111.110";
  EXPECT_EQ(e4m3.saturates_from, (448.0F + 480.0F) / 2);
  EXPECT_EQ(std::ldexp(1.0F, e4m3.min_exponent), decode_fp8<DType::kE4M3>(0x08));
  EXPECT_EQ(1 << e4m3.mantissa_bits, 0x08);
  const CodeGrid e5m2 = code_grid(DType::kE5M2);
  EXPECT_EQ(e5m2.max, 1.75F * 32768.0F) << "0x7B: S.11110.11";
  EXPECT_EQ(e5m2.saturates_from, (57344.0F + 65536.0F) / 2);
  EXPECT_EQ(std::ldexp(1.0F, e5m2.min_exponent), decode_fp8<DType::kE5M2>(0x04));
  EXPECT_EQ(1 << e5m2.mantissa_bits, 0x04);
  const CodeGrid e2m1 = code_grid(DType::kE2M1);
  EXPECT_EQ(e2m1.max, 6.0F);
  EXPECT_EQ(e2m1.saturates_from, 7.0F);
  EXPECT_EQ(std::ldexp(1.0F, e2m1.min_exponent), decode_e2m1(0x2));
  EXPECT_EQ(1 << e2m1.mantissa_bits, 0x2);
}

// cases.md case 34: a format that is none of them must not get the constants of one.
TEST(CodeGrids, AnotherFormatIsRefused) {
  for (const DType dtype : {DType::kE8M0, DType::kBF16, DType::kF32, DType::kU8}) {
    EXPECT_THROW(static_cast<void>(code_grid(dtype)), Error) << to_string(dtype);
    EXPECT_THROW(static_cast<void>(fp8_max(dtype)), Error) << to_string(dtype);
  }
  EXPECT_THROW(static_cast<void>(fp8_max(DType::kE2M1)), Error);
  EXPECT_EQ(fp8_max(DType::kE4M3), 448.0F);
  EXPECT_EQ(fp8_max(DType::kE5M2), 57344.0F);
}

TEST(E4M3, WorkedCodes) {
  const std::array<Golden, 16> kGolden = {{{17, 0x58},
                                           {18, 0x59},
                                           {19, 0x5A},
                                           {448, 0x7E},
                                           {464, 0x7E},
                                           {480, 0x7E},
                                           {-480, 0xFE},
                                           {kInf, 0x7E},
                                           {-kInf, 0xFE},
                                           {1.5F * 0x1p-10F, 0x01},
                                           {std::nextafter(0x1p-10F, 1.0F), 0x01},
                                           {0x1p-10F, 0x00},
                                           {-0x1p-11F, 0x80},
                                           {-0.0F, 0x80},
                                           {0x1p-6F, 0x08},
                                           {kDenormal, 0x00}}};
  for (const Golden& golden : kGolden) EXPECT_EQ(encode_e4m3(golden.value), golden.code) << golden.value;
}

TEST(E5M2, WorkedCodes) {
  const std::array<Golden, 12> kGolden = {{{61440, 0x7B},
                                           {65536, 0x7B},
                                           {57344, 0x7B},
                                           {480, 0x60},
                                           {448, 0x5F},
                                           {0x1p-16F, 0x01},
                                           {0x1p-17F, 0x00},
                                           {19, 0x4D},
                                           {kInf, 0x7B},
                                           {-kInf, 0xFB},
                                           {-0.0F, 0x80},
                                           {-kDenormal, 0x80}}};
  for (const Golden& golden : kGolden) EXPECT_EQ(encode_e5m2(golden.value), golden.code) << golden.value;
}

TEST(Fp8, EveryNaNLosesItsSign) {
  for (const std::uint32_t bits :
       {0x7F800001U, 0x7FC00000U, 0x7FFFFFFFU, 0xFF800001U, 0xFFC00000U, 0xFFFFFFFFU}) {
    EXPECT_EQ(encode_e4m3(from_bits(bits)), 0x7F);
    EXPECT_EQ(encode_e5m2(from_bits(bits)), 0x7F);
  }
}

/// Every bf16 value, and every midpoint of the grid with its two fp32 neighbours.
template <class Encode>
void check_against_grid(const MinifloatGrid& grid, Encode&& encode) {
  for (std::uint32_t high = 0; high <= 0xFFFF; ++high) {
    const float value = from_bits(high << 16);
    ASSERT_EQ(encode(value), grid.encode(value)) << value;
  }
  for (std::size_t code = 0; code + 1 < grid.values().size(); ++code) {
    const auto middle = static_cast<float>((grid.values()[code] + grid.values()[code + 1]) / 2);
    for (const std::uint32_t bits : {bits_of(middle) - 1, bits_of(middle), bits_of(middle) + 1}) {
      ASSERT_EQ(encode(from_bits(bits)), grid.encode(from_bits(bits))) << from_bits(bits);
      ASSERT_EQ(encode(-from_bits(bits)), grid.encode(-from_bits(bits))) << -from_bits(bits);
    }
  }
}

TEST(E4M3, NearestCodeForEveryBf16AndEveryTie) { check_against_grid(MinifloatGrid::e4m3(), encode_e4m3); }
TEST(E5M2, NearestCodeForEveryBf16AndEveryTie) { check_against_grid(MinifloatGrid::e5m2(), encode_e5m2); }
TEST(E2M1, NearestCodeForEveryBf16AndEveryTie) { check_against_grid(MinifloatGrid::e2m1(), encode_e2m1); }

TEST(E4M3, EveryCodeDecodesToItsValueAndComesBack) {
  const MinifloatGrid grid = MinifloatGrid::e4m3();
  for (int code = 0; code <= 0xFF; ++code) {
    const float value = decode_fp8<DType::kE4M3>(static_cast<std::uint8_t>(code));
    ASSERT_EQ(bits_of(value), bits_of(kFp8Values<DType::kE4M3>[static_cast<std::size_t>(code)]));
    ASSERT_EQ(std::signbit(value), code >= 0x80);
    if ((code & 0x7F) == 0x7F) {
      ASSERT_TRUE(std::isnan(value));
      continue;
    }
    ASSERT_EQ(std::abs(static_cast<double>(value)), grid.values()[static_cast<std::size_t>(code & 0x7F)]);
    ASSERT_EQ(encode_e4m3(value), code);
  }
}

TEST(E5M2, EveryCodeDecodesToItsValueAndComesBack) {
  const MinifloatGrid grid = MinifloatGrid::e5m2();
  for (int code = 0; code <= 0xFF; ++code) {
    const float value = decode_fp8<DType::kE5M2>(static_cast<std::uint8_t>(code));
    ASSERT_EQ(bits_of(value), bits_of(kFp8Values<DType::kE5M2>[static_cast<std::size_t>(code)]));
    ASSERT_EQ(std::signbit(value), code >= 0x80);
    const int magnitude = code & 0x7F;
    if (magnitude > 0x7C) {
      ASSERT_TRUE(std::isnan(value));
    } else if (magnitude == 0x7C) {
      ASSERT_TRUE(std::isinf(value));
    } else {
      ASSERT_EQ(std::abs(static_cast<double>(value)), grid.values()[static_cast<std::size_t>(magnitude)]);
      ASSERT_EQ(encode_e5m2(value), code);
    }
  }
}

TEST(Fp8, ZeroCodes) {
  for (int code = 0; code <= 0xFF; ++code) {
    EXPECT_EQ(is_fp8_zero(static_cast<std::uint8_t>(code)), code == 0x00 || code == 0x80);
  }
}

TEST(Fp8, SaturationBeginsAtTheTieWithTheNextStep) {
  // E4M3 would go on with 480, E5M2 with 65536.
  EXPECT_EQ(from_bits(Fp8Traits<DType::kE4M3>::kSaturatesFrom), 464.0F);
  EXPECT_EQ(from_bits(Fp8Traits<DType::kE5M2>::kSaturatesFrom), 61440.0F);
}

TEST(E2M1, WorkedThresholds) {
  const std::array<Golden, 16> kGolden = {{{0.25F, 0},
                                           {0.26F, 1},
                                           {0.74F, 1},
                                           {0.75F, 2},
                                           {1.25F, 2},
                                           {1.26F, 3},
                                           {1.75F, 4},
                                           {2.5F, 4},
                                           {2.51F, 5},
                                           {3.49F, 5},
                                           {3.5F, 6},
                                           {5.0F, 6},
                                           {5.01F, 7},
                                           {1e30F, 7},
                                           {-kInf, 0xF},
                                           {-0.0F, 0x8}}};
  for (const Golden& golden : kGolden) EXPECT_EQ(encode_e2m1(golden.value), golden.code) << golden.value;
  EXPECT_EQ(encode_e2m1(kNaN), 0x7);
  EXPECT_EQ(encode_e2m1(-kNaN), 0x7);
}

TEST(E2M1, DecodesAndIgnoresTheHighNibble) {
  constexpr std::array<float, 8> kValues = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  for (std::uint8_t code = 0; code < 8; ++code) {
    EXPECT_EQ(decode_e2m1(code), kValues[code]);
    EXPECT_EQ(decode_e2m1(static_cast<std::uint8_t>(code | 0x8)), -kValues[code]);
    EXPECT_EQ(decode_e2m1(static_cast<std::uint8_t>(code | 0xF0)), decode_e2m1(code | 0x0));
  }
  EXPECT_TRUE(std::signbit(decode_e2m1(0x8)));
}

TEST(E2M1, PacksTheEvenElementIntoTheLowNibble) {
  const std::uint8_t pair = pack_e2m1(encode_e2m1(1.0F), encode_e2m1(-6.0F));
  EXPECT_EQ(pair, 0xF2);
  EXPECT_EQ(decode_e2m1(unpack_e2m1_even(pair)), 1.0F);
  EXPECT_EQ(decode_e2m1(unpack_e2m1_odd(pair)), -6.0F);
}

TEST(E8M0, WorkedCodes) {
  const std::array<Golden, 15> kGolden = {{{0, 0},
                                           {kDenormal, 0},
                                           {0x1p-127F, 0},
                                           {std::nextafter(0x1p-127F, 1.0F), 1},
                                           {0x1p-126F, 1},
                                           {std::nextafter(0x1p-126F, 1.0F), 2},
                                           {1, 127},
                                           {std::nextafter(1.0F, 2.0F), 128},
                                           {2, 128},
                                           {-2, 128},
                                           {0x1p127F, 254},
                                           {std::nextafter(0x1p127F, kInf), 254},
                                           {std::numeric_limits<float>::max(), 254},
                                           {kInf, 254},
                                           {-kInf, 254}}};
  for (const Golden& golden : kGolden) EXPECT_EQ(encode_e8m0(golden.value), golden.code) << golden.value;
  EXPECT_EQ(encode_e8m0(kNaN), 255);
  EXPECT_EQ(encode_e8m0(-kNaN), 255);
}

TEST(E8M0, IsTheSmallestPowerOfTwoThatCoversEveryBf16) {
  for (std::uint32_t high = 0; high < 0x7F80; ++high) {
    const double value = static_cast<double>(from_bits(high << 16));
    int code = 0;
    while (code < 254 && std::ldexp(1.0, code - 127) < value) ++code;
    ASSERT_EQ(encode_e8m0(static_cast<float>(value)), code) << value;
  }
}

TEST(E8M0, DecodeAndMultiplierArePowersOfTwo) {
  for (int code = 0; code < 255; ++code) {
    const auto byte = static_cast<std::uint8_t>(code);
    EXPECT_EQ(static_cast<double>(decode_e8m0(byte)), std::ldexp(1.0, code - 127));
    EXPECT_EQ(static_cast<double>(e8m0_encode_multiplier(byte)), std::ldexp(1.0, 127 - code));
    EXPECT_EQ(encode_e8m0(decode_e8m0(byte)), code);
  }
  EXPECT_TRUE(std::isnan(decode_e8m0(255)));
  EXPECT_TRUE(std::isnan(e8m0_encode_multiplier(255)));
}

static_assert(encode_fp8<DType::kE4M3>(464.0F) == 0x7E && encode_fp8<DType::kE5M2>(0x1p-16F) == 0x01 &&
                  decode_fp8<DType::kE4M3>(0x58) == 16.0F && encode_e2m1(5.0F) == 6 &&
                  encode_e8m0(3.0F) == 129,
              "usable in constant expressions");

}  // namespace
}  // namespace amaxscope::test
