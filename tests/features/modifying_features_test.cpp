// What the features that change numerics decide and make, on one rank. Files of the shapes that the
// reference's own tests and documentation use must plan as they do there.
#include <gmock/gmock.h>

#include <bit>
#include <limits>

#include "core/error.hpp"
#include "runtime/quantizers/debug_quantizer.hpp"
#include "runtime/quantizers/delayed_scaling.hpp"
#include "runtime/quantizers/plan_check.hpp"
#include "tests/features/feature_support.hpp"

namespace amaxscope {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::layer_with;
using testing_support::LoadedFeatures;
using testing_support::recipe_quantizer;
using testing_support::section;

constexpr Direction kRow = Direction::kRowwise;
constexpr Direction kColumn = Direction::kColumnwise;
constexpr Usage kBoth{true, true};

std::string error_of(const std::function<void()>& action) {
  try {
    action();
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig) << error.what();
    return error.what();
  }
}

/// fprop, dgrad, wgrad
std::vector<bool> fp8_gemms(const Feature& feature, std::int64_t iteration = 0) {
  std::vector<bool> enabled;
  for (const Gemm gemm : kAllGemms) {
    enabled.push_back(feature.fp8_gemm_enabled(layer_with(RecipeKind::kDelayed), gemm, iteration).enabled);
  }
  return enabled;
}

/// "fprop/activation" for each pair that is modified.
std::vector<std::string> modified(const Feature& feature, RecipeKind recipe = RecipeKind::kDelayed,
                                  std::int64_t iteration = 0) {
  std::vector<std::string> pairs;
  for (const Gemm gemm : kAllGemms) {
    for (const TensorKind tensor : kAllTensors) {
      if (feature.modify_tensor_enabled(layer_with(recipe), gemm, tensor, iteration).enabled) {
        pairs.push_back(std::string(to_string(gemm)) + "/" + std::string(to_string(tensor)));
      }
    }
  }
  return pairs;
}

/// Plans of a tensor under a recipe: "Quantize|High Precision".
std::string plans(const LoadedFeatures& features, TensorKind tensor, RecipeKind recipe = RecipeKind::kDelayed,
                  std::int64_t iteration = 0) {
  const LayerDescription layer = layer_with(recipe);
  const DebugServices services;
  auto parent = recipe == RecipeKind::kNone || is_result(tensor) ? nullptr : recipe_quantizer(DType::kE4M3);
  DebugQuantizer quantizer(layer, tensor, parent, features.all(), services);
  quantizer.begin_iteration(iteration);
  std::string text(to_string(quantizer.plan(kRow)));
  if (!is_result(tensor)) text += "|" + std::string(to_string(quantizer.plan(kColumn)));
  return text;
}

TEST(DisableQuantizationGemm, OnlyTheListedGemmsLeaveFp8) {
  const LoadedFeatures features(section("s", "{DisableFP8GEMM: {enabled: True, gemms: [dgrad, wgrad]}}"));
  EXPECT_EQ(features.front().config().name, "DisableQuantizationGEMM");
  EXPECT_THAT(fp8_gemms(features.front()), ElementsAre(true, false, false));
  EXPECT_THAT(fp8_gemms(features.front()), ElementsAre(true, false, false)) << "asked again";
  EXPECT_EQ(plans(features, TensorKind::kActivation), "Quantize|High Precision");
  EXPECT_EQ(plans(features, TensorKind::kWeight), "Quantize|High Precision");
  EXPECT_EQ(plans(features, TensorKind::kGradient), "High Precision|High Precision");
  EXPECT_TRUE(modified(features.front()).empty());
  EXPECT_TRUE(features.front().alters_numerics());
}

TEST(DisableQuantizationGemm, EveryCombinationOfGemms) {
  for (unsigned mask = 1; mask < 8; ++mask) {
    std::string listed;
    for (std::size_t i = 0; i < kAllGemms.size(); ++i) {
      if ((mask >> i & 1U) != 0)
        listed += (listed.empty() ? "" : ", ") + std::string(to_string(kAllGemms[i]));
    }
    const LoadedFeatures features(
        section("s", "{DisableQuantizationGEMM: {enabled: True, gemms: [" + listed + "]}}"));
    const auto fp8 = fp8_gemms(features.front());
    for (std::size_t i = 0; i < kAllGemms.size(); ++i) EXPECT_EQ(fp8[i], (mask >> i & 1U) == 0) << listed;
    check_plans(layer_with(RecipeKind::kDelayed), features.all(), true);
  }
}

TEST(DisableQuantizationLayer, AllGemmsLeaveFp8) {
  const LoadedFeatures features(section("s", "{DisableFP8Layer: {enabled: True}}"));
  EXPECT_EQ(features.front().config().name, "DisableQuantizationLayer");
  EXPECT_THAT(fp8_gemms(features.front()), ElementsAre(false, false, false));
  const Decision decision =
      features.front().fp8_gemm_enabled(layer_with(RecipeKind::kDelayed), Gemm::kFprop, 3);
  EXPECT_EQ(decision.next, std::nullopt) << "always";
}

TEST(DisableQuantization, FollowsTheSchedule) {
  const LoadedFeatures features(
      section("s", "{DisableQuantizationGEMM: {enabled: True, gemms: [fprop], start_step: 3, end_step: 5}}"));
  EXPECT_EQ(plans(features, TensorKind::kWeight, RecipeKind::kDelayed, 2), "Quantize|Quantize");
  EXPECT_EQ(plans(features, TensorKind::kWeight, RecipeKind::kDelayed, 3), "High Precision|Quantize");
  EXPECT_EQ(plans(features, TensorKind::kWeight, RecipeKind::kDelayed, 6), "Quantize|Quantize");
  const Decision decision =
      features.front().fp8_gemm_enabled(layer_with(RecipeKind::kDelayed), Gemm::kFprop, 3);
  EXPECT_EQ(decision.next, std::optional<std::int64_t>(6));
}

TEST(PerTensorScaling, ModifiesTheListedPairsOnly) {
  const LoadedFeatures features(section("s", R"({PerTensorScaling: {enabled: True, gemms_struct: [
      {gemm: fprop, tensors: [activation, weight]}, {gemm: dgrad, tensors: [gradient]}]}})"));
  EXPECT_THAT(modified(features.front()), ElementsAre("fprop/activation", "fprop/weight", "dgrad/gradient"));
  EXPECT_THAT(fp8_gemms(features.front()), ElementsAre(true, true, true))
      << "the other operand keeps the recipe";
  EXPECT_EQ(plans(features, TensorKind::kActivation), "modify_tensor()|Quantize");
  EXPECT_EQ(plans(features, TensorKind::kGradient), "modify_tensor()|Quantize");
  check_plans(layer_with(RecipeKind::kDelayed), features.all(), true);
}

TEST(PerTensorScaling, CastsInTheRecipesFormatUnderTheCurrentScale) {
  const LoadedFeatures features(section(
      "s",
      "{PerTensorScaling: {enabled: True, gemms: [fprop, dgrad, wgrad], tensors: [activation, gradient]}}"));
  const LayerDescription layer = layer_with(RecipeKind::kDelayed);
  const DebugServices services;
  DelayedScalingState state({.history_length = 4}, nullptr);
  const Tensor x = Tensor::of({1.0F, -2.0F, 0.5F, 4.0F}, Shape{2, 2});
  for (const auto& [tensor, format, scale] : {std::tuple{TensorKind::kActivation, DType::kE4M3, 112.0F},
                                              std::tuple{TensorKind::kGradient, DType::kE5M2, 14336.0F}}) {
    auto parent = std::make_shared<Float8Quantizer>(state, state.add("fc1", format));
    DebugQuantizer quantizer(layer, tensor, parent, features.all(), services);
    quantizer.begin_iteration(0);
    const auto result = quantizer.quantize(x, kBoth, {});
    const auto& debug = dynamic_cast<const DebugQuantizedTensor&>(*result);
    ASSERT_TRUE(debug.shared()) << "one scale and one pass for both directions";
    const auto& codes = dynamic_cast<const Float8Tensor&>(*debug.get_tensor(false));
    EXPECT_EQ(codes.format(kRow), format);
    EXPECT_EQ(codes.scale(), scale);
    EXPECT_EQ(codes.dequantize(DType::kF32, kColumn).values<float>()[3], 4.0F);
    EXPECT_EQ(parent->slot().history.front(), 0U) << "the recipe's history does not see it";
  }
}

TEST(PerTensorScaling, MarginDividesTheScale) {
  const LoadedFeatures features(
      section("s", "{PerTensorScaling: {enabled: True, gemms: fprop, tensors: weight, margin: 3}}"));
  const LayerDescription layer = layer_with(RecipeKind::kDelayed);
  const DebugServices services;
  DebugQuantizer weight(layer, TensorKind::kWeight, recipe_quantizer(DType::kE4M3), features.all(), services);
  weight.begin_iteration(0);
  const auto result = weight.quantize(Tensor::of({-7.0F}, Shape{1, 1}), {true, false}, {});
  EXPECT_EQ(result->operand(kRow).scale_inv, 0.125F);  // (448 / 8) / 7 = 8
}

TEST(PerTensorScaling, NeedsTheDelayedRecipe) {
  const LoadedFeatures strict(
      section("mine", "{PerTensorScaling: {enabled: True, gemms: [fprop], tensors: [weight]}}"));
  for (const RecipeKind recipe : {RecipeKind::kNone, RecipeKind::kCurrent}) {
    const std::string text = error_of([&] { strict.front().admit_layer(layer_with(recipe), {}); });
    EXPECT_THAT(text, AllOf(HasSubstr("layer decoder.fc1"), HasSubstr("section mine"),
                            HasSubstr(std::string("the layer has ") + std::string(to_string(recipe))),
                            HasSubstr("skip_unsupported: True")));
    EXPECT_EQ(error_of([&] { strict.front().check_layer(layer_with(recipe)); }), text);
  }
  EXPECT_EQ(error_of([&] { strict.front().admit_layer(layer_with(RecipeKind::kDelayed), {}); }), "");
}

TEST(PerTensorScaling, SkipsUnsupportedLayersWithOneWarning) {
  const LoadedFeatures features(section(
      "mine",
      "{PerTensorScaling: {enabled: True, gemms: [fprop], tensors: [weight], skip_unsupported: True}}"));
  std::vector<std::string> warnings;
  const LayerTerms terms{.warn = [&](const std::string& text) { warnings.push_back(text); }};
  features.front().admit_layer(layer_with(RecipeKind::kCurrent), terms);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(warnings.front(), AllOf(HasSubstr("layer decoder.fc1"), HasSubstr("skipped")));
  EXPECT_TRUE(modified(features.front(), RecipeKind::kCurrent).empty());
  EXPECT_EQ(plans(features, TensorKind::kWeight, RecipeKind::kCurrent), "Quantize|Quantize");
  features.front().admit_layer(layer_with(RecipeKind::kDelayed), terms);
  EXPECT_EQ(warnings.size(), 1U);
  EXPECT_THAT(modified(features.front()), ElementsAre("fprop/weight"));
}

TEST(PerTensorScaling, ResultsAreRefused) {
  const LoadedFeatures features(
      section("mine", "{PerTensorScaling: {enabled: True, gemms: [fprop], tensors: [output]}}"));
  EXPECT_THAT(error_of([&] { features.front().admit_layer(layer_with(RecipeKind::kDelayed), {}); }),
              AllOf(HasSubstr("layer decoder.fc1"), HasSubstr("section mine"), HasSubstr("output")));
}

TEST(PerTensorScaling, BesideADisabledGemmIsRefused) {
  const LoadedFeatures features(
      section("one", "{PerTensorScaling: {enabled: True, gemms: [fprop], tensors: [activation]}}") +
      section("two", "{DisableQuantizationGEMM: {enabled: True, gemms: [fprop], start_step: 10}}"));
  EXPECT_THAT(error_of([&] { check_plans(layer_with(RecipeKind::kDelayed), features.all(), true); }),
              AllOf(HasSubstr("section one"), HasSubstr("section two"), HasSubstr("iteration 10 fprop")));
}

TEST(FakeQuant, ModifiesTheListedPairsAndTakesTheirGemmsOutOfFp8) {
  const LoadedFeatures features(
      section("s", R"({FakeQuant: {enabled: True, quant_format: FP8E5M2, gemms_struct: [
      {gemm: fprop, tensors: [activation]}, {gemm: dgrad, tensors: [gradient]}]}})"));
  EXPECT_THAT(modified(features.front()), ElementsAre("fprop/activation", "dgrad/gradient"));
  EXPECT_THAT(fp8_gemms(features.front()), ElementsAre(false, false, true));
  EXPECT_EQ(plans(features, TensorKind::kActivation), "modify_tensor()|Quantize");
  EXPECT_EQ(plans(features, TensorKind::kWeight), "High Precision|High Precision");
  EXPECT_EQ(plans(features, TensorKind::kGradient), "modify_tensor()|Quantize");
  for (const RecipeKind recipe : {RecipeKind::kNone, RecipeKind::kDelayed, RecipeKind::kCurrent}) {
    features.front().admit_layer(layer_with(recipe), {});
    check_plans(layer_with(recipe), features.all(), recipe != RecipeKind::kNone);
  }
  EXPECT_EQ(plans(features, TensorKind::kActivation, RecipeKind::kNone), "modify_tensor()|High Precision");
}

TEST(FakeQuant, OnlyWhileItIsDue) {
  const LoadedFeatures features(
      section("s", R"({FakeQuant: {enabled: True, quant_format: FP8E4M3, gemms: [fprop],
      tensors: [activation, weight], freq: 4, start_step: 4}})"));
  EXPECT_EQ(plans(features, TensorKind::kActivation, RecipeKind::kDelayed, 0), "Quantize|Quantize");
  EXPECT_EQ(plans(features, TensorKind::kActivation, RecipeKind::kDelayed, 4), "modify_tensor()|Quantize");
  const Decision due = features.front().fp8_gemm_enabled(layer_with(RecipeKind::kDelayed), Gemm::kFprop, 4);
  EXPECT_FALSE(due.enabled);
  EXPECT_EQ(due.next, std::optional<std::int64_t>(5));
  EXPECT_EQ(features.front().fp8_gemm_enabled(layer_with(RecipeKind::kDelayed), Gemm::kFprop, 5).next,
            std::optional<std::int64_t>(8));
}

/// What FakeQuant makes of these values.
std::vector<float> fake_quantized(const std::string& format, std::initializer_list<float> values) {
  const LoadedFeatures features(section("s", "{FakeQuant: {enabled: True, quant_format: " + format +
                                                 ", gemms: [fprop], tensors: [activation]}}"));
  const LayerDescription layer = layer_with(RecipeKind::kNone);
  const DebugServices services;
  DebugQuantizer activation(layer, TensorKind::kActivation, nullptr, features.all(), services);
  activation.begin_iteration(0);
  const Tensor x = Tensor::of(values, Shape{1, static_cast<std::int64_t>(values.size())});
  const Tensor result = activation.quantize(x, {true, false}, {})->dequantize(DType::kF32, kRow);
  const auto floats = result.values<float>();
  return {floats.begin(), floats.end()};
}

TEST(FakeQuant, RoundsToTheFormatsGrid) {
  // Scale 448/448 = 1: the E4M3 grid around 17 has steps of 2, ties go to even.
  EXPECT_THAT(fake_quantized("FP8E4M3", {448, 17, 18, 19, 0x1.8p-10F, 0x1p-10F, -0x1p-11F}),
              ElementsAre(448, 16, 18, 20, 0x1p-9F, 0, 0));
  // Scale 57344/7 = 8192: E5M2 has two mantissa bits.
  EXPECT_THAT(fake_quantized("FP8E5M2", {7, -1.125F, 1.375F, 4.5F}), ElementsAre(7, -1, 1.5F, 4));
}

TEST(FakeQuant, SpecialTensorsHaveScaleOne) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  EXPECT_THAT(fake_quantized("FP8E4M3", {0, 0}), ElementsAre(0, 0));
  EXPECT_THAT(fake_quantized("FP8E4M3", {kInf, -kInf, 17}), ElementsAre(448, -448, 16)) << "Inf saturates";
  const auto with_nan = fake_quantized("FP8E4M3", {std::numeric_limits<float>::quiet_NaN(), 7});
  EXPECT_TRUE(std::isnan(with_nan[0]));
  EXPECT_EQ(with_nan[1], 7) << "NaN is no part of the amax";
  // 448/1e-40 overflows: the scale is FLT_MAX, under which 1e-40 is 0.034 and survives.
  EXPECT_NEAR(fake_quantized("FP8E4M3", {1e-40F})[0], 1e-40F, 1e-41F);
}

TEST(FakeQuant, OperandsComeBackInTheComputeDtype) {
  const LoadedFeatures features(section(
      "s",
      "{FakeQuant: {enabled: True, quant_format: FP8E4M3, gemms: [fprop, wgrad], tensors: [activation]}}"));
  LayerDescription layer = layer_with(RecipeKind::kDelayed);
  layer.compute_dtype = DType::kBF16;
  const DebugServices services;
  DebugQuantizer activation(layer, TensorKind::kActivation, recipe_quantizer(DType::kE4M3), features.all(),
                            services);
  activation.begin_iteration(0);
  const auto result = activation.quantize(Tensor::of({448.0F, 17.0F}, Shape{1, 2}), kBoth, {});
  EXPECT_TRUE(dynamic_cast<const DebugQuantizedTensor&>(*result).shared());
  EXPECT_EQ(result->format(kRow), DType::kBF16);
  EXPECT_EQ(result->operand(kColumn).data.values<BF16>()[1].bits, 0x4180);  // 16
}

// Q-8: the reference returns nothing to cast when it quantizes into an existing tensor.
TEST(FakeQuant, ACachedWeightIsQuantizedAnewInTheComputeDtype) {
  const LoadedFeatures features(section(
      "s", "{FakeQuant: {enabled: True, quant_format: FP8E4M3, gemms: [fprop, dgrad], tensors: [weight]}}"));
  LayerDescription layer = layer_with(RecipeKind::kDelayed);
  layer.compute_dtype = DType::kBF16;
  const DebugServices services;
  DebugQuantizer weight(layer, TensorKind::kWeight, recipe_quantizer(DType::kE4M3), features.all(), services);
  weight.begin_iteration(0);
  const auto cached = weight.quantize(Tensor::of({448.0F, 17.0F}, Shape{1, 2}), kBoth, {});
  weight.begin_iteration(1);
  weight.update(Tensor::of({448.0F, 19.0F}, Shape{1, 2}), *cached, {});
  for (const Direction direction : {kRow, kColumn}) {
    EXPECT_EQ(cached->format(direction), DType::kBF16);
    EXPECT_EQ(cached->operand(direction).data.values<BF16>()[1].bits, 0x41A0);  // 20: 19 is a tie
  }
}

TEST(FakeQuant, ResultsAreChangedInPlace) {
  const LoadedFeatures features(section("s",
                                        "{FakeQuant: {enabled: True, quant_format: FP8E4M3, gemms: [fprop, "
                                        "dgrad, wgrad], tensors: [output, dgrad, "
                                        "wgrad]}}"));
  EXPECT_THAT(modified(features.front()), ElementsAre("fprop/output", "dgrad/dgrad", "wgrad/wgrad"));
  LayerDescription layer = layer_with(RecipeKind::kNone);
  layer.compute_dtype = DType::kBF16;
  const DebugServices services;
  for (const TensorKind tensor : {TensorKind::kOutput, TensorKind::kDgrad, TensorKind::kWgrad}) {
    DebugQuantizer quantizer(layer, tensor, nullptr, features.all(), services);
    quantizer.begin_iteration(0);
    // 3 in units of 448: scale 448/3, not a power of two, so the decoded values need more bits than bf16 has.
    Tensor result = Tensor::of({3.0F, 1.0F}, Shape{1, 2});
    quantizer.process_gemm_output(result.mutable_view(), {});
    EXPECT_EQ(result.values<float>()[0], 3.0F);
    // 149.33 rounds to 144 (grid of 16), and 144 * RN(1/149.33) = 27/28 to fp32 accuracy.
    EXPECT_NEAR(result.values<float>()[1], 27.0 / 28.0, 1e-6) << "a result keeps its own dtype";
  }
}

TEST(FakeQuant, AFormatIsRequired) {
  EXPECT_THAT(error_of([] {
                const LoadedFeatures features(
                    section("mine", "{FakeQuant: {enabled: True, gemms: [fprop], tensors: [weight]}}"));
              }),
              HasSubstr("quant_format"));
}

TEST(ModifyingFeatures, SchemasAreDocumented) {
  const FeatureRegistry registry = builtin_features();
  for (const FeatureEntry& entry : registry.entries()) {
    EXPECT_FALSE(entry.schema.doc.empty()) << entry.schema.name;
    for (const KeySchema& key : entry.schema.keys) EXPECT_FALSE(key.doc.empty()) << key.name;
  }
  const FeatureEntry* scaling = registry.find("PerTensorScaling", false);
  ASSERT_NE(scaling, nullptr);
  EXPECT_EQ(scaling->schema.keys.size(), 3U);
  EXPECT_TRUE(std::ranges::all_of(scaling->schema.keys, &KeySchema::addition));
}

}  // namespace
}  // namespace amaxscope
