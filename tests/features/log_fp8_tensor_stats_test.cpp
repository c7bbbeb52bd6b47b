#include "features/log_fp8_tensor_stats.hpp"

#include <gmock/gmock.h>

#include <cmath>

#include "runtime/quantizers/current_scaling.hpp"
#include "runtime/quantizers/delayed_scaling.hpp"
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
using testing::load_error;
using testing::names_of;
using testing::row;
using testing::te_feature;
using ::testing::UnorderedElementsAre;
using testing::value_of;

constexpr const char* kAll =
    "tensors: [activation, weight, gradient, output], stats: [underflows%, overflows%, scale_inv_min, "
    "scale_inv_max, "
    "mse, sqnr, cosine, max_error]";

struct Registered {
  explicit Registered(const std::string& body, InspectedTensor described)
      : feature(te_feature("LogFp8TensorStats", body)), tensor(std::move(described)) {
    feature->register_tensor(tensor, registration);
  }
  std::unique_ptr<Feature> feature;
  InspectedTensor tensor;
  FakeRegistration registration;
};

// Under scale 1 in E4M3: 500 and 450 become 448, 2^-11 is less than half of the smallest code 2^-9 and
// becomes 0.
Tensor clipped_row() { return row({500.0F, 450.0F, 0x1p-11F, 0.0F}); }
constexpr double kClippedErrorSquares = 52.0 * 52 + 2.0 * 2 + 0x1p-22;

TEST(LogFp8TensorStats, CodesOfDelayedScaling) {
  Registered r(kAll, gemm_tensor(TensorKind::kActivation, RecipeKind::kDelayed));
  const Tensor x = clipped_row();
  DelayedScalingState state({}, nullptr);
  Float8Quantizer quantizer(state, state.add("activation", DType::kE4M3));
  const auto codes = quantizer.quantize(x.view(), {.rowwise = true, .columnwise = true}, {});
  inspect(*r.feature, r.tensor, x.view(),
          {.rowwise = codes.get(), .columnwise = codes.get(), .quantizer = &quantizer});
  const auto values = r.registration.values();
  EXPECT_EQ(value_of(values, "underflows%"), 25.0);
  EXPECT_EQ(value_of(values, "overflows%"), 50.0);  // above 448 before the cast
  EXPECT_EQ(value_of(values, "scale_inv_min"), 1.0);
  EXPECT_EQ(value_of(values, "scale_inv_max"), 1.0);
  EXPECT_DOUBLE_EQ(*value_of(values, "mse"), kClippedErrorSquares / 4);
  EXPECT_EQ(value_of(values, "max_error"), 52.0);
  const double signal = 500.0 * 500 + 450.0 * 450 + 0x1p-22;
  EXPECT_DOUBLE_EQ(*value_of(values, "sqnr"), 10 * std::log10(signal / kClippedErrorSquares));
  EXPECT_DOUBLE_EQ(*value_of(values, "cosine"), 950.0 * 448 / std::sqrt(signal * 2 * 448 * 448));
  EXPECT_THAT(flags_of(values, "mse"), ElementsAre("no_history"));
  EXPECT_EQ(values.size(), 8U);
  EXPECT_FALSE(r.feature->alters_numerics());
}

TEST(LogFp8TensorStats, ScaleWithAHistoryHasNoFlag) {
  Registered r(kAll, gemm_tensor(TensorKind::kActivation, RecipeKind::kDelayed));
  const Tensor x = row({7.0F, 3.5F});
  DelayedScalingState state({}, nullptr);
  Float8Quantizer quantizer(state, state.add("activation", DType::kE4M3));
  static_cast<void>(quantizer.quantize(x.view(), {}, {}));
  state.update();
  const auto codes = quantizer.quantize(x.view(), {}, {});
  inspect(*r.feature, r.tensor, x.view(), {.rowwise = codes.get(), .quantizer = &quantizer});
  const auto values = r.registration.values();
  EXPECT_EQ(value_of(values, "scale_inv_max"), 0x1p-6);  // 7 / 448
  EXPECT_EQ(value_of(values, "mse"), 0.0);
  EXPECT_THAT(flags_of(values, "mse"), IsEmpty());
  EXPECT_THAT(flags_of(values, "sqnr"), ElementsAre("exact"));
}

TEST(LogFp8TensorStats, FlagsOfTheQuantizerOnlyForItsOwnScale) {
  Registered r(kAll, gemm_tensor(TensorKind::kActivation, RecipeKind::kDelayed));
  const Tensor x = clipped_row();
  DelayedScalingState state({}, nullptr);
  const Float8Quantizer quantizer(state, state.add("activation", DType::kE4M3));
  const auto modified = quantize_float8(x.view(), DType::kE4M3, 0.5F, {});
  inspect(*r.feature, r.tensor, x.view(), {.rowwise = modified.get(), .quantizer = &quantizer});
  EXPECT_EQ(value_of(r.registration.values(), "scale_inv_max"), 2.0);
  EXPECT_THAT(flags_of(r.registration.values(), "mse"), IsEmpty());
}

TEST(LogFp8TensorStats, OverflowOfCurrentScalingRoundsPastTheMaximum) {
  Registered r(kAll, gemm_tensor(TensorKind::kActivation, RecipeKind::kCurrent));
  const Tensor x = clipped_row();
  const auto codes = quantize_float8(x.view(), DType::kE4M3, 1.0F, {});
  inspect(*r.feature, r.tensor, x.view(), {.rowwise = codes.get()});
  EXPECT_EQ(value_of(r.registration.values(), "overflows%"), 25.0);  // 450 rounds to 448
}

TEST(LogFp8TensorStats, CurrentScalingOfZerosIsFlagged) {
  Registered r(kAll, gemm_tensor(TensorKind::kActivation, RecipeKind::kCurrent));
  const Tensor x = row({0.0F, -0.0F});
  Float8CurrentScalingQuantizer quantizer(DType::kE4M3, {}, nullptr);
  const auto codes = quantizer.quantize(x.view(), {}, {});
  inspect(*r.feature, r.tensor, x.view(), {.rowwise = codes.get(), .quantizer = &quantizer});
  const auto values = r.registration.values();
  EXPECT_EQ(value_of(values, "scale_inv_max"), 1.0);
  EXPECT_THAT(flags_of(values, "scale_inv_max"), ElementsAre("zero_amax"));
  EXPECT_EQ(value_of(values, "underflows%"), 0.0);
}

TEST(LogFp8TensorStats, CodesThatExistOnlyTransposed) {
  const Tensor x = Tensor::of<float>({500.0F, 450.0F, 0x1p-11F, 0.0F, 1.0F, -2.0F}, Shape{2, 3});
  std::vector<StatValue> expected;
  for (const Usage usage : {Usage{true, false}, Usage{false, true}}) {
    Registered r(kAll, gemm_tensor(TensorKind::kGradient, RecipeKind::kCurrent));
    const auto codes = quantize_float8(x.view(), DType::kE4M3, 1.0F, usage);
    inspect(*r.feature, r.tensor, x.view(), {.rowwise = nullptr, .columnwise = codes.get()});
    const auto values = r.registration.values();
    EXPECT_DOUBLE_EQ(*value_of(values, "mse"), kClippedErrorSquares / 6);
    EXPECT_DOUBLE_EQ(*value_of(values, "underflows%"), 100.0 / 6);
  }
}

TEST(LogFp8TensorStats, OneDirectionInHighPrecisionLeavesTheOther) {
  const Tensor x = clipped_row();
  const HighPrecisionTensor high(x.view());
  const auto codes = quantize_float8(x.view(), DType::kE4M3, 1.0F, {.rowwise = false, .columnwise = true});
  Registered r(kAll, gemm_tensor(TensorKind::kActivation, RecipeKind::kDelayed));
  inspect(*r.feature, r.tensor, x.view(), {.rowwise = &high, .columnwise = codes.get()});
  EXPECT_EQ(value_of(r.registration.values(), "max_error"), 52.0);
}

TEST(LogFp8TensorStats, BothDirectionsInHighPrecisionCountNothing) {
  const Tensor x = clipped_row();
  const HighPrecisionTensor high(x.view());
  Registered r(kAll, gemm_tensor(TensorKind::kActivation, RecipeKind::kDelayed));
  inspect(*r.feature, r.tensor, x.view(), {.rowwise = &high, .columnwise = &high});
  EXPECT_FALSE(r.registration.ran());
  EXPECT_THAT(r.registration.skipped, IsEmpty());
}

constexpr const char* kWhatIf =
    "tensors: [activation, weight, gradient], stats: [fp8_current_scaling_mse, "
    "fp8_current_scaling_scale_inv_min]";

// amax 7: scale 448 / 7 = 64 in E4M3, 57344 / 7 = 8192 in E5M2. 0.28 * 64 = 17.92 becomes 18, 0.28 * 8192 =
// 2293.8 becomes 2048 (the next code is 2560).
TEST(LogFp8TensorStats, CurrentScalingAsAWhatIf) {
  struct Expected {
    TensorKind kind;
    double decoded;
    double scale_inv;
  };
  for (const Expected& expected :
       {Expected{TensorKind::kActivation, 0.28125, 0x1p-6}, Expected{TensorKind::kWeight, 0.28125, 0x1p-6},
        Expected{TensorKind::kGradient, 0.25, 0x1p-13}}) {
    for (const RecipeKind recipe : {RecipeKind::kNone, RecipeKind::kDelayed, RecipeKind::kNvfp4}) {
      Registered r(kWhatIf, gemm_tensor(expected.kind, recipe));
      const Tensor x = row({7.0F, 0.28F});
      inspect(*r.feature, r.tensor, x.view());
      const auto values = r.registration.values();
      const double error = double{0.28F} - expected.decoded;
      EXPECT_DOUBLE_EQ(*value_of(values, "fp8_current_scaling_mse"), error * error / 2);
      EXPECT_EQ(value_of(values, "fp8_current_scaling_scale_inv_min"), expected.scale_inv);
      EXPECT_THAT(r.registration.skipped, IsEmpty());
    }
  }
}

TEST(LogFp8TensorStats, TheRunningRecipeInFrontTakesTheRunningCodes) {
  Registered r(
      "tensors: [activation], stats: [scale_inv_max, fp8_current_scaling_scale_inv_max, "
      "fp8_current_scaling_mse]",
      gemm_tensor(TensorKind::kActivation, RecipeKind::kCurrent));
  const Tensor x = row({7.0F, 0.28F});
  const auto codes = quantize_float8(x.view(), DType::kE4M3, 4.0F, {});  // not the scale a what-if would take
  inspect(*r.feature, r.tensor, x.view(), {.rowwise = codes.get()});
  auto values = r.registration.values();
  EXPECT_EQ(value_of(values, "scale_inv_max"), 0.25);
  EXPECT_EQ(value_of(values, "fp8_current_scaling_scale_inv_max"), 0.25);

  for (auto& one : r.registration.declared) one.cell.train->reset();
  const HighPrecisionTensor high(x.view());
  inspect(*r.feature, r.tensor, x.view(), {.rowwise = &high});
  values = r.registration.values();
  EXPECT_THAT(names_of(values),
              UnorderedElementsAre("fp8_current_scaling_scale_inv_max", "fp8_current_scaling_mse"));
  EXPECT_EQ(value_of(values, "fp8_current_scaling_scale_inv_max"), 0x1p-6);
}

TEST(LogFp8TensorStats, DelayedScalingInFrontUnderDelayedScaling) {
  Registered r("tensors: [weight], stats: [fp8_delayed_scaling_overflows%]",
               gemm_tensor(TensorKind::kWeight, RecipeKind::kDelayed));
  const Tensor x = clipped_row();
  const auto codes = quantize_float8(x.view(), DType::kE4M3, 1.0F, {});
  inspect(*r.feature, r.tensor, x.view(), {.rowwise = codes.get()});
  EXPECT_EQ(value_of(r.registration.values(), "fp8_delayed_scaling_overflows%"), 50.0);
}

TEST(LogFp8TensorStats, WhatIfFlags) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto flags = [](std::initializer_list<float> elements) {
    Registered r(kWhatIf, gemm_tensor(TensorKind::kActivation));
    inspect(*r.feature, r.tensor, row(elements).view());
    return flags_of(r.registration.values(), "fp8_current_scaling_scale_inv_min");
  };
  EXPECT_THAT(flags({0.0F}), ElementsAre("zero_amax"));
  EXPECT_THAT(flags({inf, 1.0F}), ElementsAre("inf_amax"));
  EXPECT_THAT(flags({0x1p-149F}), ElementsAre("scale_clamped"));
  EXPECT_THAT(flags({nan, 1.0F}), ElementsAre("nan_amax"));
  EXPECT_THAT(flags({1.0F}), IsEmpty());
}

TEST(LogFp8TensorStats, EmptyTensorsRanAndReportNothing) {
  Registered r(kWhatIf, gemm_tensor(TensorKind::kActivation, RecipeKind::kCurrent));
  inspect(*r.feature, r.tensor, TensorView(nullptr, DType::kF32, Shape{0, 8}));
  EXPECT_TRUE(r.registration.ran());
  EXPECT_THAT(r.registration.values(), IsEmpty());

  Registered codes_too(kAll, gemm_tensor(TensorKind::kActivation, RecipeKind::kCurrent));
  const TensorView empty(nullptr, DType::kF32, Shape{0, 8});
  const auto codes = quantize_float8(empty, DType::kE4M3, 1.0F, {});
  inspect(*codes_too.feature, codes_too.tensor, empty, {.rowwise = codes.get()});
  EXPECT_TRUE(codes_too.registration.ran());
  EXPECT_THAT(codes_too.registration.values(), IsEmpty());
}

TEST(LogFp8TensorStats, PhasesAndWeightsAsEverywhere) {
  Registered weight(kWhatIf, gemm_tensor(TensorKind::kWeight));
  inspect(*weight.feature, weight.tensor, row({7.0F}).view());
  inspect(*weight.feature, weight.tensor, row({448.0F}).view());
  EXPECT_EQ(value_of(weight.registration.values(), "fp8_current_scaling_scale_inv_min"), 0x1p-6);

  Registered activation(kWhatIf, gemm_tensor(TensorKind::kActivation));
  inspect(*activation.feature, activation.tensor, row({0.5F}).view(), {.phase = Phase::kRecompute});
  EXPECT_FALSE(activation.registration.ran());
  inspect(*activation.feature, activation.tensor, row({7.0F}).view(), {.phase = Phase::kEval});
  EXPECT_FALSE(activation.registration.ran());
  EXPECT_TRUE(activation.registration.ran(Phase::kEval));
  inspect(*activation.feature, activation.tensor, TensorView(), {.has_original = false});
  EXPECT_FALSE(activation.registration.ran());
}

TEST(LogFp8TensorStats, WhatCannotBeGivenIsSkippedOnce) {
  const std::string body =
      "tensors: [activation, output], stats: [mse, mse_columnwise, fp8_current_scaling_mse, "
      "fp8_delayed_scaling_mse, "
      "mxfp8_mse_columnwise, fp8_block_scaling_mse]";
  {
    Registered r(body, gemm_tensor(TensorKind::kActivation, RecipeKind::kNone));
    EXPECT_THAT(r.registration.skipped, ElementsAre("mse", "mse_columnwise"));
    EXPECT_THAT(r.registration.reasons[0], HasSubstr("no recipe"));
    EXPECT_EQ(r.registration.declared.size(), 5U);  // four what-ifs and the history of one
    EXPECT_TRUE(r.feature->inspect_tensor_enabled(r.tensor, 0).enabled);
  }
  {
    Registered r(body, gemm_tensor(TensorKind::kActivation, RecipeKind::kDelayed));
    EXPECT_THAT(r.registration.skipped, ElementsAre("mse_columnwise"));
    EXPECT_THAT(r.registration.reasons[0], HasSubstr("both directions have the same codes"));
    EXPECT_EQ(r.registration.declared.size(), 5U);
  }
  {
    Registered r(body, gemm_tensor(TensorKind::kActivation, RecipeKind::kNvfp4));
    EXPECT_THAT(r.registration.skipped, IsEmpty()) << "a bare name is about the running recipe, whatever it is";
  }
  {
    Registered r(body, gemm_tensor(TensorKind::kOutput, RecipeKind::kDelayed));
    EXPECT_EQ(r.registration.skipped.size(), 6U);
    EXPECT_THAT(r.registration.reasons[2], HasSubstr("not quantized"));
    EXPECT_FALSE(r.feature->inspect_tensor_enabled(r.tensor, 0).enabled);
    EXPECT_EQ(r.feature->inspect_tensor_enabled(r.tensor, 0).next, std::nullopt);
    inspect(*r.feature, r.tensor, row({1.0F}).view());
    EXPECT_FALSE(r.registration.ran());
  }
}

// A plan is asked for before anything is registered, too (amaxscope check): the answer is the same.
TEST(LogFp8TensorStats, DecisionsDoNotDependOnRegistration) {
  const auto feature =
      te_feature("LogFp8TensorStats", "tensors: [activation, output], stats: [mse], freq: 3");
  const InspectedTensor running = gemm_tensor(TensorKind::kActivation, RecipeKind::kDelayed);
  const InspectedTensor plain = gemm_tensor(TensorKind::kActivation, RecipeKind::kNone);
  const InspectedTensor unselected = gemm_tensor(TensorKind::kWeight, RecipeKind::kDelayed);
  EXPECT_TRUE(feature->inspect_tensor_enabled(running, 3).enabled);
  EXPECT_FALSE(feature->inspect_tensor_enabled(running, 4).enabled);
  EXPECT_FALSE(feature->inspect_tensor_enabled(plain, 3).enabled);
  EXPECT_FALSE(feature->inspect_tensor_enabled(unselected, 3).enabled);
}

}  // namespace
}  // namespace amaxscope
