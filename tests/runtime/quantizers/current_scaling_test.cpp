// Codes by hand: E4M3 has bias 7 and three mantissa bits, so 448 = 1.75 * 2^8 is 0x7E, 112 is 0x6E, 224 0x76,
// 56 0x66.
#include "runtime/quantizers/current_scaling.hpp"

#include <gmock/gmock.h>

#include <bit>
#include <limits>

#include "collectives/loopback_communicator.hpp"
#include "core/error.hpp"

namespace amaxscope {
namespace {

using testing::ElementsAre;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

const Float8Tensor& fp8(const std::shared_ptr<QuantizedTensor>& tensor) {
  return dynamic_cast<const Float8Tensor&>(*tensor);
}

float scale_of(Float8CurrentScalingQuantizer& quantizer, std::initializer_list<float> values) {
  return fp8(quantizer.quantize(Tensor::of(values, Shape{static_cast<std::int64_t>(values.size())}), {}, {}))
      .scale();
}

TEST(CurrentScaling, BothDirectionsInOnePass) {
  Float8CurrentScalingQuantizer quantizer(DType::kE4M3, {}, nullptr);
  const Tensor x = Tensor::of({1.0F, -2.0F, 0.5F, 4.0F}, Shape{2, 2});
  const auto tensor = quantizer.quantize(x, {true, true}, {});
  EXPECT_EQ(fp8(tensor).scale(), 112.0F);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(fp8(tensor).scale_inv()), 0x3C124925U);  // RN(1/112)
  EXPECT_THAT(fp8(tensor).codes(Direction::kRowwise).values<std::uint8_t>(),
              ElementsAre(0x6E, 0xF6, 0x66, 0x7E));
  EXPECT_THAT(fp8(tensor).codes(Direction::kColumnwise).values<std::uint8_t>(),
              ElementsAre(0x6E, 0x66, 0xF6, 0x7E));
}

TEST(CurrentScaling, OnlyWhatIsWantedIsKept) {
  Float8CurrentScalingQuantizer quantizer(DType::kE4M3, {}, nullptr);
  const Tensor x = Tensor::of({1.0F, -2.0F, 0.5F, 4.0F}, Shape{2, 2});
  EXPECT_EQ(quantizer.quantize(x, {true, false}, {})->usage(), (Usage{true, false}));
  const auto columnwise = quantizer.quantize(x, {false, true}, {});
  EXPECT_EQ(columnwise->usage(), (Usage{false, true}));
  EXPECT_THAT(fp8(columnwise).codes(Direction::kColumnwise).values<std::uint8_t>(),
              ElementsAre(0x6E, 0x66, 0xF6, 0x7E));
  EXPECT_THROW(static_cast<void>(quantizer.quantize(x, {false, false}, {})), Error);
}

TEST(CurrentScaling, ScalesOfSpecialTensors) {
  Float8CurrentScalingQuantizer e4m3(DType::kE4M3, {}, nullptr);
  EXPECT_EQ(scale_of(e4m3, {1, -0.5F}), 448.0F);
  EXPECT_EQ(e4m3.last_clamp(), ScaleClamp::kNone);
  EXPECT_EQ(scale_of(e4m3, {0, -0.0F}), 1.0F);
  EXPECT_EQ(e4m3.last_clamp(), ScaleClamp::kZeroAmax);
  EXPECT_EQ(scale_of(e4m3, {kNan, kNan}), 1.0F);
  EXPECT_EQ(e4m3.last_clamp(), ScaleClamp::kZeroAmax);
  EXPECT_EQ(scale_of(e4m3, {kInf, 3}), 1.0F);
  EXPECT_EQ(e4m3.last_clamp(), ScaleClamp::kInfAmax);
  EXPECT_EQ(scale_of(e4m3, {kNan, 2}), 224.0F) << "NaN is no part of the amax";
  EXPECT_EQ(scale_of(e4m3, {1e-37F}), std::numeric_limits<float>::max());
  EXPECT_EQ(e4m3.last_clamp(), ScaleClamp::kScaleClamped);
  EXPECT_EQ(scale_of(e4m3, {}), 1.0F);
  Float8CurrentScalingQuantizer e5m2(DType::kE5M2, {}, nullptr);
  EXPECT_EQ(scale_of(e5m2, {1}), 57344.0F);
}

TEST(CurrentScaling, PowersOfTwoAndEpsilon) {
  Float8CurrentScalingQuantizer power(DType::kE4M3, {.power_of_two = true}, nullptr);
  EXPECT_EQ(scale_of(power, {1}), 256.0F);
  EXPECT_EQ(scale_of(power, {1e-37F}), 0x1p127F);
  Float8CurrentScalingQuantizer epsilon(DType::kE4M3, {.epsilon = 7.0F}, nullptr);
  EXPECT_EQ(scale_of(epsilon, {0}), 64.0F);
  EXPECT_EQ(scale_of(epsilon, {14}), 32.0F);
}

TEST(CurrentScaling, MarginKeepsScaleAndInverseFinite) {
  const auto margin = [](float amax, DType format, int bits) {
    return scale_with_margin(std::bit_cast<std::uint32_t>(amax), format, bits);
  };
  EXPECT_EQ(margin(7, DType::kE4M3, 0).scale, 64.0F);
  EXPECT_EQ(margin(7, DType::kE4M3, 3).scale, 8.0F);
  EXPECT_EQ(margin(7, DType::kE5M2, 3).scale, 1024.0F);
  EXPECT_EQ(margin(0, DType::kE4M3, 3).clamp, ScaleClamp::kZeroAmax);
  EXPECT_EQ(margin(kInf, DType::kE4M3, 3).scale, 1.0F);
  EXPECT_EQ(margin(1, DType::kE4M3, 1000).scale, 0x1p-127F);
  EXPECT_EQ(margin(1, DType::kE4M3, 1000).clamp, ScaleClamp::kScaleClamped);
  EXPECT_EQ(margin(1, DType::kE4M3, -1000).scale, std::numeric_limits<float>::max());
}

TEST(CurrentScaling, UpdateKeepsTheDirections) {
  Float8CurrentScalingQuantizer quantizer(DType::kE4M3, {}, nullptr);
  const auto cached = quantizer.quantize(Tensor::of({8.0F, 8.0F}, Shape{1, 2}), {false, true}, {});
  quantizer.update(Tensor::of({4.0F, 1.0F}, Shape{1, 2}), *cached, {});
  EXPECT_EQ(cached->usage(), (Usage{false, true}));
  EXPECT_EQ(fp8(cached).scale(), 112.0F);
  EXPECT_THAT(fp8(cached).codes(Direction::kColumnwise).values<std::uint8_t>(), ElementsAre(0x7E, 0x6E));
}

TEST(CurrentScaling, RanksShareTheLargestAmaxAndAnEmptyShardTakesPart) {
  run_loopback_ranks(4, [](Communicator& group) {
    Float8CurrentScalingQuantizer quantizer(DType::kE4M3, {}, reduce_amaxes_over(&group, "fc1 activation"));
    const bool empty = group.rank() % 2 == 1;
    const Tensor x = empty ? Tensor(DType::kF32, Shape{0, 2})
                           : Tensor::of({1.0F, static_cast<float>(group.rank() + 2)}, Shape{1, 2});
    EXPECT_EQ(fp8(quantizer.quantize(x, {}, {})).scale(), 112.0F);
    EXPECT_EQ(quantizer.quantize(x, {}, {})->shape(), x.shape());
    EXPECT_EQ(group.counters().calls(Traffic::kDebug), 0U);
    EXPECT_EQ(group.counters().calls(Traffic::kRecipe), 2U);
  });
}

TEST(CurrentScaling, WithoutAGroupEachRankHasItsOwnScale) {
  run_loopback_ranks(2, [](Communicator& group) {
    Float8CurrentScalingQuantizer quantizer(DType::kE4M3, {}, nullptr);
    const Tensor x = Tensor::of({group.rank() == 0 ? 1.0F : 2.0F}, Shape{1});
    EXPECT_EQ(fp8(quantizer.quantize(x, {}, {})).scale(), group.rank() == 0 ? 448.0F : 224.0F);
    EXPECT_EQ(group.counters().calls(Traffic::kRecipe), 0U);
  });
}

TEST(CurrentScaling, Bf16IsWidenedBeforeTheScale) {
  Float8CurrentScalingQuantizer quantizer(DType::kE4M3, {}, nullptr);
  const Tensor x = Tensor::of({to_bf16(1.0F), to_bf16(-4.0F)}, Shape{2});
  const auto tensor = quantizer.quantize(x, {}, {});
  EXPECT_EQ(fp8(tensor).scale(), 112.0F);
  EXPECT_THAT(fp8(tensor).codes(Direction::kRowwise).values<std::uint8_t>(), ElementsAre(0x6E, 0xFE));
}

TEST(CurrentScaling, OnlyFp8Formats) {
  EXPECT_THROW(Float8CurrentScalingQuantizer(DType::kF32, {}, nullptr), Error);
}

}  // namespace
}  // namespace amaxscope
