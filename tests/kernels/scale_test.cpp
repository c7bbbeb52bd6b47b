#include "kernels/codec/scale.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/values.hpp"

namespace amaxscope::test {
namespace {

ScaleFromAmax scale_of(float amax, const ScaleOptions& options = {}) {
  return scale_from_amax(bits_of(amax), options);
}

ScaleOptions power_of_two() {
  ScaleOptions options;
  options.power_of_two = true;
  return options;
}

TEST(ScaleFromAmax, MaxOfEachFormat) {
  EXPECT_EQ(fp8_max(DType::kE4M3), 448.0F);
  EXPECT_EQ(fp8_max(DType::kE5M2), 57344.0F);
  ScaleOptions e5m2;
  e5m2.max_value = fp8_max(DType::kE5M2);
  EXPECT_EQ(scale_of(1.0F).scale, 448.0F);
  EXPECT_EQ(scale_of(1.0F, e5m2).scale, 57344.0F);
  EXPECT_EQ(scale_of(1.0F).clamp, ScaleClamp::kNone);
}

TEST(ScaleFromAmax, IsOneCorrectlyRoundedDivision) {
  // 448 / 3 = 149.3333..; the fp32 neighbours are 149.33332825 and 149.33334351.
  EXPECT_EQ(bits_of(scale_of(3.0F).scale), 0x43155555U);
  // 448 / 0.1f, 0.1f = 0x3DCCCCCD = 13421773 * 2^-27: 4479.99993324 -> 0x458C0000 (4480) is 0.0000668 away.
  EXPECT_EQ(scale_of(0.1F).scale, 4480.0F);
}

TEST(ScaleFromAmax, ZeroAndInfinityGiveOne) {
  EXPECT_EQ(scale_of(0.0F).scale, 1.0F);
  EXPECT_EQ(scale_of(0.0F).clamp, ScaleClamp::kZeroAmax);
  EXPECT_EQ(scale_of(kInf).scale, 1.0F);
  EXPECT_EQ(scale_of(kInf).clamp, ScaleClamp::kInfAmax);
  EXPECT_EQ(scale_of(kInf, power_of_two()).scale, 1.0F);
}

TEST(ScaleFromAmax, OverflowIsClampedToTheLargestFloat) {
  EXPECT_EQ(scale_of(1e-37F).scale, kFloatMax);
  EXPECT_EQ(scale_of(1e-37F).clamp, ScaleClamp::kScaleClamped);
  EXPECT_EQ(scale_of(kDenormal).scale, kFloatMax);
  EXPECT_EQ(kFloatMax, std::numeric_limits<float>::max());
  // The edge: 448 / FLT_MAX = 1.3166e-36.
  EXPECT_EQ(scale_of(1.32e-36F).clamp, ScaleClamp::kNone);
  EXPECT_TRUE(std::isfinite(scale_of(1.32e-36F).scale));
  EXPECT_EQ(scale_of(1.31e-36F).clamp, ScaleClamp::kScaleClamped);
}

TEST(ScaleFromAmax, ValueForInfinityOfANarrowerInput) {
  ScaleOptions options;
  options.value_for_infinity = 0x1.FEp127F;  // bf16's maximum
  EXPECT_EQ(scale_of(1e-37F, options).scale, 0x1.FEp127F);
}

TEST(ScaleFromAmax, PowerOfTwoRoundsDown) {
  EXPECT_EQ(scale_of(1.0F, power_of_two()).scale, 256.0F);
  EXPECT_EQ(scale_of(448.0F, power_of_two()).scale, 1.0F);
  EXPECT_EQ(scale_of(449.0F, power_of_two()).scale, 0.5F);
  EXPECT_EQ(scale_of(3.5F, power_of_two()).scale, 128.0F);
  EXPECT_EQ(scale_of(1e-37F, power_of_two()).scale, 0x1p127F);
}

TEST(ScaleFromAmax, EpsilonRaisesSmallAmaxes) {
  ScaleOptions options;
  options.epsilon = 0.5F;
  EXPECT_EQ(scale_of(0.25F, options).scale, 896.0F);
  EXPECT_EQ(scale_of(0.0F, options).scale, 896.0F);
  EXPECT_EQ(scale_of(0.0F, options).clamp, ScaleClamp::kNone);
  EXPECT_EQ(scale_of(1.0F, options).scale, 448.0F);
  EXPECT_EQ(scale_of(kInf, options).scale, 1.0F);
}

TEST(ScaleFromAmax, MarginIsPartOfTheMaximum) {
  ScaleOptions options;
  options.max_value = std::ldexp(fp8_max(DType::kE4M3), -2);
  EXPECT_EQ(scale_of(7.0F, options).scale, 16.0F);
}

TEST(ScaleFromAmax, ScaleAndInverseAreFiniteAndNonZeroForEveryBf16Amax) {
  for (const DType format : {DType::kE4M3, DType::kE5M2}) {
    for (const bool pow2 : {false, true}) {
      ScaleOptions options;
      options.max_value = fp8_max(format);
      options.power_of_two = pow2;
      for (std::uint32_t high = 0; high <= 0x7F80; ++high) {
        const float scale = scale_from_amax(high << 16, options).scale;
        ASSERT_TRUE(std::isfinite(scale) && scale > 0) << high;
        const float inverse = scale_inverse(scale);
        ASSERT_TRUE(std::isfinite(inverse) && inverse > 0) << high;
      }
    }
  }
}

TEST(ScaleInverse, KeepsSubnormals) {
  EXPECT_EQ(scale_inverse(0x1p127F), 0x1p-127F);
  EXPECT_EQ(bits_of(scale_inverse(kFloatMax)),
            0x00200000U);  // 2^-128 and about 2^-152, rounded to a multiple of 2^-149
  EXPECT_EQ(bits_of(scale_inverse(448.0F)), 0x3B124925U);
}

static_assert(scale_from_amax(0x3F800000U, {}).scale == 448.0F, "usable in constant expressions");

}  // namespace
}  // namespace amaxscope::test
