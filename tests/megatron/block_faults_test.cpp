// Planted faults of the block-scaled recipes.
#include "megatron/block_faults.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/rounding_error.hpp"
#include "megatron/layers/operand_quantizers.hpp"
#include "megatron/model_support.hpp"
#include "runtime/quantizers/block_scaled_tensor.hpp"
#include "runtime/quantizers/mxfp8.hpp"
#include "runtime/stats/rounding_sums.hpp"

namespace amaxscope::megatron {
namespace {

using testing::random_tensor;
using testing::to_doubles;

constexpr Usage kBoth{.rowwise = true, .columnwise = true};
constexpr TensorMoment kBackward{.phase = Phase::kBackward, .microbatch = 0};

std::vector<double> decoded(const QuantizedTensor& tensor, Direction direction) {
  return to_doubles(tensor.dequantize(DType::kF32, direction).view());
}

/// 32 x 32: 1 on the diagonal and 0.25 elsewhere, so that every block of 32 has the amax 1.
Tensor diagonal(float on) {
  Tensor x(DType::kF32, {32, 32});
  for (std::size_t i = 0; i < 32 * 32; ++i) x.values<float>()[i] = i % 33 == 0 ? on : 0.25F;
  return x;
}

// 1 / 448 lies between 2^-9 and 2^-8. Rounded up the code of 1 is 256; rounded down it would be 512, and 448
// stands for 448 / 512 = 0.875.
TEST(ScaleRoundedDown, SaturatesTheLargestElementsInBothDirections) {
  FaultTable table({parse_fault("scale_rounded_down@iteration=1")}, 0);
  RoundedDownQuantizer quantizer(std::make_shared<Mxfp8Quantizer>(DType::kE4M3, false), table, "fc",
                                 TensorKind::kWeight);
  const Tensor x = diagonal(1.0F);
  const std::shared_ptr<QuantizedTensor> tensor = quantizer.quantize(x, kBoth, kBackward);
  EXPECT_EQ(decoded(*tensor, Direction::kRowwise), to_doubles(x.view()));
  table.begin_iteration(1);
  const std::vector<double> saturated = to_doubles(diagonal(0.875F).view());
  for (const std::int64_t iteration : {1, 2}) {
    table.begin_iteration(iteration);
    quantizer.update(x, *tensor, kBackward);
    const std::shared_ptr<QuantizedTensor> fresh = quantizer.quantize(x, kBoth, kBackward);
    for (const Direction direction : {Direction::kRowwise, Direction::kColumnwise}) {
      EXPECT_EQ(decoded(*tensor, direction), saturated);
      EXPECT_EQ(decoded(*fresh, direction), saturated);
    }
  }
  EXPECT_EQ(decoded(*quantizer.quantize(x, {.rowwise = false, .columnwise = true}, kBackward),
                    Direction::kColumnwise),
            saturated);
}

TEST(ScaleRoundedDown, LeavesPowersOfTwoAndZeros) {
  const FaultTable table({parse_fault("scale_rounded_down")}, 0);
  RoundedDownQuantizer quantizer(std::make_shared<Mxfp8Quantizer>(DType::kE4M3, false), table, "fc",
                                 TensorKind::kWeight);
  for (const Tensor& x : {diagonal(0.875F), Tensor(DType::kF32, {32, 32})}) {
    EXPECT_EQ(decoded(*quantizer.quantize(x, kBoth, kBackward), Direction::kRowwise), to_doubles(x.view()));
  }
}

TEST(FixedRoundingSeed, RoundsAlikeEveryTimeWhileItIsDue) {
  FaultTable table({parse_fault("fixed_rounding_seed@iteration=1")}, 0);
  FixedSeedQuantizer quantizer(std::make_shared<Nvfp4Quantizer>(Nvfp4Usage{.stochastic_rounding = true},
                                                                Nvfp4Options{}, ReduceAmaxes{}),
                               table, "fc", TensorKind::kGradient);
  const Tensor x = random_tensor(DType::kF32, {64, 64}, 1);
  const auto rounded = [&] { return decoded(*quantizer.quantize(x, kBoth, kBackward), Direction::kRowwise); };
  EXPECT_NE(rounded(), rounded());
  table.begin_iteration(1);
  const std::vector<double> fixed = rounded();
  EXPECT_EQ(rounded(), fixed);
  table.begin_iteration(7);
  EXPECT_EQ(rounded(), fixed);
}

// Two gradients that have nothing in common, signs included: what they share can only be the random numbers.
TEST(FixedRoundingSeed, ShowsInTheCorrelationOfErrorsAwayFromZero) {
  FaultTable table({parse_fault("fixed_rounding_seed@iteration=1")}, 0);
  FixedSeedQuantizer quantizer(std::make_shared<Nvfp4Quantizer>(Nvfp4Usage{.stochastic_rounding = true},
                                                                Nvfp4Options{}, ReduceAmaxes{}),
                               table, "fc", TensorKind::kGradient);
  const auto outward_of = [&](unsigned seed) {
    const Tensor x = random_tensor(DType::kF32, {64, 64}, seed);
    const auto codes = quantizer.quantize(x, kBoth, kBackward);
    std::vector<float> errors(4096);
    std::vector<float> outward(4096);
    sampled_rounding_errors(x, dynamic_cast<const BlockScaledTensor&>(*codes).blocks(Direction::kRowwise),
                            errors, outward);
    return outward;
  };
  const auto correlation = [&] {
    const std::vector<float> before = outward_of(1);
    const std::vector<float> now = outward_of(2);
    return rounding_correlation(rounding_sums(now, now, before)).value();
  };
  EXPECT_LT(std::abs(correlation()), 0.08);
  table.begin_iteration(1);
  EXPECT_GT(correlation(), 0.35);
}

LayerQuantizers quantizers_of(const std::string& layer, RecipeKind recipe, const FaultTable& table) {
  LayerContext context;
  context.recipe = recipe;
  context.faults = &table;
  LayerDescription description;
  description.name = layer;
  description.recipe = recipe;
  return make_operand_quantizers(context, description);
}

TEST(E5m2Gradients, ChangeTheGradientsOfTheirLayer) {
  const FaultTable one({parse_fault("e5m2_gradients@layer=fc1")}, 0);
  const LayerQuantizers struck = quantizers_of("fc1", RecipeKind::kMxfp8, one);
  EXPECT_EQ(struck.operands.gradient->format(), DType::kE5M2);
  EXPECT_EQ(struck.operands.activation->format(), DType::kE4M3);
  EXPECT_EQ(struck.operands.weight->format(), DType::kE4M3);
  EXPECT_EQ(quantizers_of("fc2", RecipeKind::kMxfp8, one).operands.gradient->format(), DType::kE4M3);
  const FaultTable all({parse_fault("e5m2_gradients")}, 0);
  EXPECT_EQ(quantizers_of("fc2", RecipeKind::kMxfp8, all).operands.gradient->format(), DType::kE5M2);
}

TEST(RoundingFaults, AreBuiltWhereTheyArePlanted) {
  const FaultTable table({parse_fault("scale_rounded_down@layer=fc1,tensor=gradient")}, 0);
  const LayerQuantizers struck = quantizers_of("fc1", RecipeKind::kMxfp8, table);
  EXPECT_NE(dynamic_cast<RoundedDownQuantizer*>(struck.operands.gradient.get()), nullptr);
  EXPECT_EQ(dynamic_cast<RoundedDownQuantizer*>(struck.operands.weight.get()), nullptr);
  EXPECT_EQ(dynamic_cast<RoundedDownQuantizer*>(
                quantizers_of("fc2", RecipeKind::kMxfp8, table).operands.gradient.get()),
            nullptr);
}

}  // namespace
}  // namespace amaxscope::megatron
