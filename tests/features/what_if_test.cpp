// Statistics of recipes that do not run, and of block-scaled ones that do. Numbers are worked by hand.
#include <gmock/gmock.h>

#include <cmath>

#include "runtime/quantizers/quantizer_factory.hpp"
#include "tests/features/inspecting_fixture.hpp"

namespace amaxscope {
namespace {

using ::testing::ElementsAre;
using testing::FakeRegistration;
using testing::flags_of;
using testing::gemm_tensor;
using ::testing::HasSubstr;
using testing::inspect;
using ::testing::IsEmpty;
using testing::names_of;
using testing::row;
using testing::te_feature;
using testing::value_of;

struct Registered {
  explicit Registered(const std::string& stats, InspectedTensor described)
      : feature(te_feature("LogFp8TensorStats",
                           "tensors: [activation, weight, gradient], stats: [" + stats + "]")),
        tensor(std::move(described)) {
    FeatureServices services;
    services.warn = [this](const std::string& message) { warnings.push_back(message); };
    feature->attach(services);
    feature->register_tensor(tensor, registration);
  }
  void inspect_at(std::int64_t iteration, const TensorView& x, const QuantizedTensor* rowwise = nullptr,
                  const QuantizedTensor* columnwise = nullptr, Phase phase = Phase::kForward) {
    feature->inspect_tensor({.tensor = tensor,
                             .iteration = iteration,
                             .moment = {.phase = phase, .microbatch = 0},
                             .x = x,
                             .has_original = true,
                             .rowwise = rowwise,
                             .columnwise = columnwise,
                             .quantizer = nullptr,
                             .tp_amax = nullptr});
  }
  /// What step() would report; ends the step of amax histories, too.
  std::vector<StatValue> step() {
    auto values = registration.values();
    for (auto& one : registration.declared) {
      one.cell.train->reset();
      one.cell.eval->reset();
    }
    return values;
  }
  std::unique_ptr<Feature> feature;
  InspectedTensor tensor;
  FakeRegistration registration;
  std::vector<std::string> warnings;
};

/// Zeros but for 448 and a tiny 2^-12 beside it. Rowwise they share a block of 1 x 32, under the scale 1, and
/// 2^-12 is below half of the smallest code 2^-9; columnwise each has a block of its own.
Tensor tiny_beside_large(std::int64_t rows = 32, std::int64_t cols = 32) {
  Tensor x(DType::kF32, {rows, cols});
  x.values<float>()[0] = 448;
  x.values<float>()[1] = 0x1p-12F;
  return x;
}

constexpr const char* kBothDirections =
    "mxfp8_underflows%, mxfp8_mse, mxfp8_scale_inv_min, mxfp8_scale_inv_max, mxfp8_zero_blocks, "
    "mxfp8_underflows%_columnwise, mxfp8_mse_columnwise, mxfp8_scale_inv_min_columnwise, "
    "mxfp8_zero_blocks_columnwise, mxfp8_scale_spread_columnwise, mxfp8_flushed_blocks%";

// S-6: columnwise statistics are of the columnwise codes. S-7: scales are decoded. S-8, S-9: all-zero blocks
// and padding (the scale array is 128 x 4) are in none of them.
TEST(WhatIf, Mxfp8InBothDirections) {
  Registered r(kBothDirections, gemm_tensor(TensorKind::kActivation));
  EXPECT_THAT(r.registration.skipped, IsEmpty());
  const Tensor x = tiny_beside_large();
  r.inspect_at(0, x.view());
  const auto values = r.step();
  EXPECT_EQ(value_of(values, "mxfp8_underflows%"), 100.0 / 1024);
  EXPECT_EQ(value_of(values, "mxfp8_underflows%_columnwise"), 0.0);
  EXPECT_EQ(value_of(values, "mxfp8_mse"), 0x1p-24 / 1024);
  EXPECT_EQ(value_of(values, "mxfp8_mse_columnwise"), 0.0);
  EXPECT_EQ(value_of(values, "mxfp8_scale_inv_min"), 1.0);
  EXPECT_EQ(value_of(values, "mxfp8_scale_inv_max"), 1.0);
  EXPECT_EQ(value_of(values, "mxfp8_zero_blocks"), 31.0);
  EXPECT_EQ(value_of(values, "mxfp8_zero_blocks_columnwise"), 30.0);
  // 2^-12 / 448 is 2^-20.8; the power of two above it is 2^-20.
  EXPECT_EQ(value_of(values, "mxfp8_scale_inv_min_columnwise"), 0x1p-20);
  EXPECT_EQ(value_of(values, "mxfp8_scale_spread_columnwise"), 20.0);
  EXPECT_EQ(value_of(values, "mxfp8_flushed_blocks%"), 100.0 / 32);
}

// Extents that fill no block: zeros are added for the quantizer and not counted.
TEST(WhatIf, ShapesThatAreNoMultipleOfABlock) {
  Registered r(kBothDirections, gemm_tensor(TensorKind::kActivation));
  const Tensor x = tiny_beside_large(5, 40);
  r.inspect_at(0, x.view());
  const auto values = r.step();
  EXPECT_EQ(value_of(values, "mxfp8_underflows%"), 100.0 / 200);
  EXPECT_EQ(value_of(values, "mxfp8_mse"), 0x1p-24 / 200);
  EXPECT_EQ(value_of(values, "mxfp8_zero_blocks"), 9.0);  // 5 rows of 2 blocks
  EXPECT_EQ(value_of(values, "mxfp8_zero_blocks_columnwise"), 38.0);
  EXPECT_EQ(value_of(values, "mxfp8_flushed_blocks%"), 10.0);
}

// S-10: FP8 block scaling has blocks of 1 x 128 for activations and gradients and 128 x 128 for weights.
TEST(WhatIf, BlocksOfBlockScalingByTensor) {
  Tensor x(DType::kF32, {2, 128});
  x.values<float>()[0] = 448;
  x.values<float>()[128] = 0x1p-12F;  // the row below
  for (const auto& [kind, expected] : {std::pair{TensorKind::kActivation, 0.0},
                                       {TensorKind::kGradient, 0.0},
                                       {TensorKind::kWeight, 100.0 / 256}}) {
    Registered r("fp8_block_scaling_underflows%", gemm_tensor(kind));
    r.inspect_at(0, x.view());
    EXPECT_EQ(value_of(r.step(), "fp8_block_scaling_underflows%"), expected) << to_string(kind);
  }
}

// S-11: E4M3 gradients under MXFP8 (its default), E5M2 under delayed scaling (HYBRID). 1.0625 is a tie in
// E4M3 (1) and between 1 and 1.25 in E5M2 (1); 1.125 is a code of E4M3 only.
TEST(WhatIf, FormatsAreTheRecipesDefaults) {
  Registered r("mxfp8_mse, fp8_delayed_scaling_mse", gemm_tensor(TensorKind::kGradient));
  Tensor x(DType::kF32, {32, 32});
  x.values<float>()[0] = 1.125F;
  r.inspect_at(0, x.view());
  const auto values = r.step();
  EXPECT_EQ(value_of(values, "mxfp8_mse"), 0.0);
  EXPECT_EQ(value_of(values, "fp8_delayed_scaling_mse"), 0.125 * 0.125 / 1024);
}

TEST(WhatIf, DelayedScalingKeepsAHistoryOfItsOwn) {
  constexpr const char* kScale = "fp8_delayed_scaling_scale_inv_max";
  Registered r(std::string(kScale) + ", fp8_delayed_scaling_overflows%, fp8_delayed_scaling_scale_age",
               gemm_tensor(TensorKind::kActivation));
  r.inspect_at(0, row({7.0F, 500.0F}).view());
  auto values = r.step();
  EXPECT_EQ(value_of(values, kScale), 1.0);
  EXPECT_THAT(flags_of(values, kScale), ElementsAre("no_history"));
  EXPECT_EQ(value_of(values, "fp8_delayed_scaling_overflows%"), 50.0);
  // The step's amax was 500; an evaluation of 10^6 in between is not in the history.
  r.inspect_at(1, row({1e6F}).view(), nullptr, nullptr, Phase::kEval);
  r.inspect_at(1, row({7.0F}).view());
  values = r.step();
  EXPECT_EQ(value_of(values, kScale), double{1.0F / (448.0F / 500.0F)});
  EXPECT_THAT(flags_of(values, kScale), IsEmpty());
  EXPECT_EQ(value_of(values, "fp8_delayed_scaling_scale_age"), 0.0);
  // The maximum of the history stays 500.
  r.inspect_at(2, row({7.0F}).view());
  values = r.step();
  EXPECT_EQ(value_of(values, kScale), double{1.0F / (448.0F / 500.0F)});
  EXPECT_EQ(value_of(values, "fp8_delayed_scaling_scale_age"), 1.0);
}

TEST(WhatIf, TheHistoryOfDelayedScalingSeesEveryIteration) {
  const auto feature = te_feature(
      "LogFp8TensorStats", "tensors: [activation], stats: [fp8_delayed_scaling_mse], freq: 5, end_step: 10");
  const InspectedTensor tensor = gemm_tensor(TensorKind::kActivation);
  for (const std::int64_t iteration : {0, 1, 4, 10}) {
    EXPECT_TRUE(feature->inspect_tensor_enabled(tensor, iteration).enabled) << iteration;
  }
  EXPECT_FALSE(feature->inspect_tensor_enabled(tensor, 11).enabled);
  // Where delayed scaling runs its own history is there.
  const InspectedTensor running = gemm_tensor(TensorKind::kActivation, RecipeKind::kDelayed);
  EXPECT_FALSE(feature->inspect_tensor_enabled(running, 1).enabled);
}

// A run that is continued goes on with the history, whether the tensor is registered before or after loading.
TEST(WhatIf, TheHistoryOfDelayedScalingSurvivesARestart) {
  constexpr const char* kScale = "fp8_delayed_scaling_scale_inv_max";
  Registered before(kScale, gemm_tensor(TensorKind::kActivation));
  before.inspect_at(0, row({7.0F}).view());
  static_cast<void>(before.step());
  FeatureState saved;
  before.feature->save_state(saved);
  ASSERT_EQ(saved.size(), 2U);

  Registered loaded_after(kScale, gemm_tensor(TensorKind::kActivation));
  loaded_after.feature->load_state(saved);
  Registered loaded_first(kScale, gemm_tensor(TensorKind::kWeight));  // another tensor has no part in it
  loaded_first.feature->load_state(saved);
  FakeRegistration registration;
  const InspectedTensor late = gemm_tensor(TensorKind::kActivation);
  loaded_first.feature->register_tensor(late, registration);
  loaded_after.inspect_at(1, row({1.0F}).view());
  EXPECT_EQ(value_of(loaded_after.step(), kScale), 0x1p-6);
  inspect(*loaded_first.feature, late, row({1.0F}).view());
  EXPECT_EQ(value_of(registration.values(), kScale), 0x1p-6);

  for (auto& [name, words] : saved) words.pop_back();
  EXPECT_THROW(loaded_after.feature->load_state(saved), Error);
}

std::shared_ptr<QuantizedTensor> quantized(RecipeKind recipe, const Tensor& x, Usage usage) {
  QuantizerRequest request;
  request.recipe = recipe;
  request.tensor = TensorKind::kActivation;
  return make_quantizer(request)->quantize(x.view(), usage, {});
}

// S-17: each direction by itself; what is in high precision is left out and nothing fails.
TEST(RunningBlocks, DirectionsAreLookedAtByThemselves) {
  const Tensor x = tiny_beside_large();
  const auto codes = quantized(RecipeKind::kMxfp8, x, {.rowwise = true, .columnwise = true});
  const HighPrecisionTensor high(x.view());
  {
    Registered r("underflows%, underflows%_columnwise",
                 gemm_tensor(TensorKind::kActivation, RecipeKind::kMxfp8));
    r.inspect_at(0, x.view(), codes.get(), codes.get());
    const auto values = r.step();
    EXPECT_EQ(value_of(values, "underflows%"), 100.0 / 1024);
    EXPECT_EQ(value_of(values, "underflows%_columnwise"), 0.0);
  }
  {
    Registered r("underflows%, underflows%_columnwise",
                 gemm_tensor(TensorKind::kActivation, RecipeKind::kMxfp8));
    r.inspect_at(0, x.view(), &high, codes.get());
    EXPECT_THAT(names_of(r.step()), ElementsAre("underflows%_columnwise"));
    r.inspect_at(1, x.view(), codes.get(), &high);
    EXPECT_THAT(names_of(r.step()), ElementsAre("underflows%"));
    r.inspect_at(2, x.view(), &high, &high);
    EXPECT_THAT(r.step(), IsEmpty());
  }
}

TEST(RunningBlocks, WhatHasNoMeaningIsSkipped) {
  Registered r("worst_blocks", gemm_tensor(TensorKind::kActivation, RecipeKind::kMxfp8));
  EXPECT_THAT(r.registration.skipped, IsEmpty());
  Registered per_tensor("worst_blocks, zero_blocks, scale_spread",
                        gemm_tensor(TensorKind::kActivation, RecipeKind::kCurrent));
  EXPECT_THAT(per_tensor.registration.skipped, ElementsAre("worst_blocks", "zero_blocks", "scale_spread"));
  EXPECT_THAT(per_tensor.registration.reasons.front(), HasSubstr("one scale"));
  Registered age("scale_age", gemm_tensor(TensorKind::kActivation, RecipeKind::kMxfp8));
  EXPECT_THAT(age.registration.skipped, ElementsAre("scale_age"));
}

// The same tensor again has the same errors; other ones do not.
TEST(RoundingHealth, CorrelationWithThePreviousDueStep) {
  Registered r("mxfp8_rounding_correlation, mxfp8_rounding_mean, mxfp8_rounding_z",
               gemm_tensor(TensorKind::kActivation));
  const auto noise = [](unsigned seed) {
    Tensor x(DType::kF32, {64, 64});
    std::uint32_t state = seed;
    for (float& value : x.values<float>()) {
      state = state * 1664525U + 1013904223U;
      value = static_cast<float>(state >> 8) * 0x1p-23F - 1.0F;
    }
    return x;
  };
  const Tensor first = noise(1);
  r.inspect_at(0, first.view());
  auto values = r.step();
  EXPECT_FALSE(value_of(values, "mxfp8_rounding_correlation").has_value());
  EXPECT_LT(std::abs(*value_of(values, "mxfp8_rounding_mean")), 0.03);
  EXPECT_LT(std::abs(*value_of(values, "mxfp8_rounding_z")), 4.5);
  r.inspect_at(10, first.view());
  EXPECT_NEAR(*value_of(r.step(), "mxfp8_rounding_correlation"), 1.0, 1e-9);
  const Tensor other = noise(2);
  r.inspect_at(20, other.view());
  EXPECT_LT(std::abs(*value_of(r.step(), "mxfp8_rounding_correlation")), 0.08);
}

TEST(FeedWithoutAnOriginal, ScalesAreReportedAndTheRestIsSaidOnce) {
  const Tensor x = tiny_beside_large();
  const auto codes = quantized(RecipeKind::kMxfp8, x, {.rowwise = true, .columnwise = true});
  Registered r("mse, scale_inv_max, mxfp8_mse, fp8_current_scaling_mse",
               gemm_tensor(TensorKind::kWeight, RecipeKind::kMxfp8));
  for (int repeat = 0; repeat < 2; ++repeat) {
    inspect(*r.feature, r.tensor, TensorView(),
            {.rowwise = codes.get(), .columnwise = codes.get(), .has_original = false});
    EXPECT_EQ(value_of(r.step(), "scale_inv_max"), 1.0);
  }
  EXPECT_THAT(r.warnings, ElementsAre(HasSubstr("mse of weight is skipped"), HasSubstr("mxfp8_mse"),
                                      HasSubstr("fp8_current_scaling_mse")));
  EXPECT_THAT(r.warnings.front(), HasSubstr("codes only"));
}

}  // namespace
}  // namespace amaxscope
