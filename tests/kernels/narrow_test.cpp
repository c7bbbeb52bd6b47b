#include "kernels/codec/narrow.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/kernels/values.hpp"

namespace amaxscope::test {
namespace {

TEST(Narrow, DoubleToBf16RoundsOnce) {
  // 1 + 2^-8 is the tie between 1 and 1 + 2^-7. A double just above it must go up; fp32 would round to the
  // tie first.
  const double above = 1.0 + 0x1p-8 + 0x1p-40;
  EXPECT_EQ(to_bf16(static_cast<float>(above)).bits, 0x3F80) << "the premise: rounding twice loses it";
  EXPECT_EQ(narrow<BF16>(above).bits, 0x3F81);
  EXPECT_EQ(narrow<BF16>(-above).bits, 0xBF81);
  EXPECT_EQ(narrow<BF16>(1.0 + 0x1p-8).bits, 0x3F80);
  // 1 + 3 * 2^-8 ties to the even 1 + 2^-6; just below goes down.
  EXPECT_EQ(narrow<BF16>(1.0 + 3 * 0x1p-8).bits, 0x3F82);
  EXPECT_EQ(narrow<BF16>(1.0 + 3 * 0x1p-8 - 0x1p-40).bits, 0x3F81);
}

TEST(Narrow, DoubleToF16RoundsOnce) {
  EXPECT_EQ(narrow<F16>(1.0 + 0x1p-11 + 0x1p-40).bits, 0x3C01);
  EXPECT_EQ(narrow<F16>(1.0 + 0x1p-11).bits, 0x3C00);
  EXPECT_EQ(narrow<F16>(0x1p-25 + 0x1p-60).bits, 0x0001);  // just above half the smallest subnormal
  EXPECT_EQ(narrow<F16>(0x1p-25).bits, 0x0000);
}

TEST(Narrow, DoubleBeyondFp32) {
  EXPECT_EQ(narrow<BF16>(1e300).bits, 0x7F80);
  EXPECT_EQ(narrow<BF16>(-1e300).bits, 0xFF80);
  EXPECT_EQ(narrow<BF16>(1e-300).bits, 0x0000);
  EXPECT_EQ(narrow<BF16>(-1e-300).bits, 0x8000);
  EXPECT_EQ(narrow<F16>(65520.0 - 1e-9).bits, 0x7BFF);
  EXPECT_EQ(narrow<F16>(65520.0).bits, 0x7C00);
  EXPECT_EQ(narrow<BF16>(std::numeric_limits<double>::infinity()).bits, 0x7F80);
  EXPECT_EQ(narrow<BF16>(std::numeric_limits<double>::quiet_NaN()).bits, 0x7FFF);
  EXPECT_EQ(narrow<float>(1e300), kInf);
}

TEST(Narrow, RoundToOddKeepsExactValues) {
  for (const float value : {0.0F, -0.0F, 1.5F, kDenormal, std::numeric_limits<float>::max(), kInf}) {
    EXPECT_EQ(bits_of(round_to_odd(static_cast<double>(value))), bits_of(value));
  }
  // Every inexact double ends with an odd fp32 pattern next to it.
  for (int i = 1; i < 500; ++i) {
    const double x = std::exp(i * 0.1 - 50) * (i % 2 == 0 ? 1 : -1);
    const float odd = round_to_odd(x);
    EXPECT_EQ(bits_of(odd) & 1U, 1U);
    EXPECT_LT(std::abs(static_cast<double>(odd) - x), std::abs(x) * 0x1p-23);
  }
}

}  // namespace
}  // namespace amaxscope::test
