#include "core/half.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace amaxscope {
namespace {

/// The value of a finite 16-bit pattern by its definition, sign aside.
double value_of(std::uint32_t magnitude, int mantissa_bits, int bias) {
  const auto exponent = static_cast<int>(magnitude >> mantissa_bits);
  const std::uint32_t mantissa = magnitude & ((1U << mantissa_bits) - 1U);
  if (exponent == 0) return std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return std::ldexp(mantissa + (1U << mantissa_bits), exponent - bias - mantissa_bits);
}

std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }

TEST(Bf16, EveryPatternWidensToItsValueAndComesBack) {
  for (std::uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const float widened = to_float(BF16{static_cast<std::uint16_t>(bits)});
    ASSERT_EQ(bits_of(widened), bits << 16);
    const std::uint32_t magnitude = bits & 0x7FFF;
    if (magnitude > 0x7F80) {
      ASSERT_EQ(to_bf16(widened).bits, 0x7FFF) << std::hex << bits;
      continue;
    }
    ASSERT_EQ(to_bf16(widened).bits, bits) << std::hex << bits;
    if (magnitude < 0x7F80) {
      ASSERT_EQ(std::abs(static_cast<double>(widened)), value_of(magnitude, 7, 127));
    }
  }
}

TEST(F16, EveryPatternWidensToItsValueAndComesBack) {
  for (std::uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const float widened = to_float(F16{static_cast<std::uint16_t>(bits)});
    const std::uint32_t magnitude = bits & 0x7FFF;
    ASSERT_EQ(std::signbit(widened), (bits & 0x8000) != 0);
    if (magnitude > 0x7C00) {
      ASSERT_TRUE(std::isnan(widened)) << std::hex << bits;
      ASSERT_EQ(to_f16(widened).bits, 0x7FFF) << std::hex << bits;
      continue;
    }
    ASSERT_EQ(to_f16(widened).bits, bits) << std::hex << bits;
    if (magnitude == 0x7C00) {
      ASSERT_TRUE(std::isinf(widened));
    } else {
      ASSERT_EQ(std::abs(static_cast<double>(widened)), value_of(magnitude, 10, 15)) << std::hex << bits;
    }
  }
}

/// Between any two neighbours: the tie goes to the even pattern, one fp32 step aside to the nearer one.
template <class Narrow>
void check_ties(std::uint32_t infinity, int mantissa_bits, int bias, Narrow&& narrow) {
  for (std::uint32_t low = 0; low < infinity; ++low) {
    const std::uint32_t high = low + 1;  // the pattern of Inf stands for the next power of two when rounding
    const double middle = (value_of(low, mantissa_bits, bias) + value_of(high, mantissa_bits, bias)) / 2;
    const auto tie = static_cast<float>(middle);
    ASSERT_EQ(static_cast<double>(tie), middle);
    const std::uint32_t even = low % 2 == 0 ? low : high;
    ASSERT_EQ(narrow(tie), even) << std::hex << low;
    ASSERT_EQ(narrow(-tie), even | 0x8000U) << std::hex << low;
    ASSERT_EQ(narrow(std::bit_cast<float>(bits_of(tie) - 1)), low) << std::hex << low;
    ASSERT_EQ(narrow(std::bit_cast<float>(bits_of(tie) + 1)), high) << std::hex << low;
  }
}

TEST(Bf16, RoundsToNearestTiesToEven) {
  check_ties(0x7F80, 7, 127, [](float x) { return std::uint32_t{to_bf16(x).bits}; });
}

TEST(F16, RoundsToNearestTiesToEven) {
  check_ties(0x7C00, 10, 15, [](float x) { return std::uint32_t{to_f16(x).bits}; });
}

TEST(F16, WorkedValues) {
  EXPECT_EQ(to_f16(65504.0F).bits, 0x7BFF);
  EXPECT_EQ(to_f16(65519.996F).bits, 0x7BFF);
  EXPECT_EQ(to_f16(65520.0F).bits, 0x7C00);
  EXPECT_EQ(to_f16(std::numeric_limits<float>::max()).bits, 0x7C00);
  EXPECT_EQ(to_f16(0x1p-24F).bits, 0x0001);
  EXPECT_EQ(to_f16(0x1p-25F).bits, 0x0000);
  EXPECT_EQ(to_f16(-0x1p-26F).bits, 0x8000);
  EXPECT_EQ(to_f16(-std::numeric_limits<float>::denorm_min()).bits, 0x8000);
  EXPECT_EQ(to_f16(-std::numeric_limits<float>::infinity()).bits, 0xFC00);
}

TEST(Bf16, WorkedValues) {
  EXPECT_EQ(to_bf16(1.0F).bits, 0x3F80);
  EXPECT_EQ(to_bf16(3.4e38F).bits, 0x7F80);  // past the last bf16 by more than half a step
  EXPECT_EQ(to_bf16(std::numeric_limits<float>::denorm_min()).bits, 0x0000);
  EXPECT_EQ(to_bf16(-0.0F).bits, 0x8000);
  EXPECT_EQ(to_bf16(std::bit_cast<float>(0xFF800001U)).bits, 0x7FFF);  // a NaN of the smallest payload
}

static_assert(to_bf16(1.0F).bits == 0x3F80 && to_float(F16{0x3C00}) == 1.0F,
              "usable in constant expressions");

}  // namespace
}  // namespace amaxscope
