#include "features/recipe_override.hpp"

#include <gmock/gmock.h>

#include "collectives/loopback_communicator.hpp"
#include "core/error.hpp"
#include "runtime/quantizers/block_scaled_tensor.hpp"
#include "runtime/quantizers/debug_quantizer.hpp"
#include "runtime/quantizers/plan_check.hpp"
#include "tests/features/feature_support.hpp"
#include "tests/runtime/session/session_fixture.hpp"

namespace amaxscope {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing_support::layer_with;
using testing_support::LoadedFeatures;
using testing_support::recipe_quantizer;
using testing_support::section;

std::string override_with(const std::string& body) {
  return section("s", "{RecipeOverride: {enabled: True, " + body + "}}");
}

std::string error_of(const std::function<void()>& action) {
  try {
    action();
    return "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig) << error.what();
    return error.what();
  }
}

const QuantizedTensor& member(const QuantizedTensor& pair, bool transpose) {
  return *dynamic_cast<const DebugQuantizedTensor&>(pair).get_tensor(transpose);
}

// With or without a running recipe.
TEST(RecipeOverride, QuantizesWithTheOtherRecipe) {
  const LoadedFeatures features(
      override_with("recipe: mxfp8, gemms: [fprop, wgrad], tensors: [activation, weight, gradient]"));
  EXPECT_TRUE(features.front().alters_numerics());
  const DebugServices services;
  for (const RecipeKind recipe : {RecipeKind::kNone, RecipeKind::kCurrent}) {
    const LayerDescription layer = layer_with(recipe);
    check_plans(layer, features.all(), recipe != RecipeKind::kNone);
    DebugQuantizer quantizer(layer, TensorKind::kActivation,
                             recipe == RecipeKind::kNone ? nullptr : recipe_quantizer(DType::kE4M3),
                             features.all(), services);
    quantizer.begin_iteration(0);
    const Tensor x(DType::kF32, {32, 32});
    const auto made = quantizer.quantize(x.view(), {.rowwise = true, .columnwise = true}, {});
    for (const bool transpose : {false, true}) {
      const auto* blocks = dynamic_cast<const BlockScaledTensor*>(&member(*made, transpose));
      ASSERT_NE(blocks, nullptr);
      EXPECT_EQ(blocks->recipe(), RecipeKind::kMxfp8);
    }
  }
}

TEST(RecipeOverride, EveryRecipeMakesItsKind) {
  for (const std::string recipe : {"current", "mxfp8", "block", "nvfp4"}) {
    const LoadedFeatures features(
        override_with("recipe: " + recipe + ", gemms: [dgrad], tensors: [gradient, weight]"));
    const LayerDescription layer = layer_with(RecipeKind::kNone);
    const DebugServices services;
    DebugQuantizer quantizer(layer, TensorKind::kGradient, nullptr, features.all(), services);
    quantizer.begin_iteration(0);
    const Tensor x = Tensor::of<float>(std::vector<float>(1024, 1.0F), {32, 32});
    const auto made = quantizer.quantize(x.view(), {.rowwise = true, .columnwise = false}, {});
    const DType format = made->format(Direction::kRowwise);
    EXPECT_EQ(format, operand_format(*parse_recipe(recipe), TensorKind::kGradient)) << recipe;
    EXPECT_NEAR(made->dequantize(DType::kF32, Direction::kRowwise).values<float>()[7], 1.0F, 1e-5) << recipe;
  }
}

// One operand in codes, the other in high precision.
TEST(RecipeOverride, HalfAGemmIsRefusedWithoutARecipe) {
  const LoadedFeatures half(override_with("recipe: mxfp8, gemms: [fprop], tensors: [activation]"));
  EXPECT_THAT(error_of([&] { check_plans(layer_with(RecipeKind::kNone), half.all(), false); }),
              AllOf(HasSubstr("fprop"), HasSubstr("RecipeOverride"), HasSubstr("weight")));
  // Under a recipe both are codes; that they are of two recipes is said.
  check_plans(layer_with(RecipeKind::kDelayed), half.all(), true);
  std::vector<std::string> warnings;
  const LayerTerms terms{AmaxScope::kTensor, [&](const std::string& text) { warnings.push_back(text); }};
  half.front().admit_layer(layer_with(RecipeKind::kDelayed), terms);
  EXPECT_THAT(warnings, ::testing::ElementsAre(
                            AllOf(HasSubstr("fprop"), HasSubstr("under mxfp8"), HasSubstr("under delayed"))));
  const LoadedFeatures whole(override_with("recipe: mxfp8, gemms: [fprop], tensors: [activation, weight]"));
  warnings.clear();
  whole.front().admit_layer(layer_with(RecipeKind::kDelayed), terms);
  EXPECT_TRUE(warnings.empty());
  const LoadedFeatures clash(override_with("recipe: mxfp8, gemms: [fprop], tensors: [activation]") +
                             section("t", "{DisableQuantizationGEMM: {enabled: True, gemms: [fprop]}}"));
  EXPECT_THAT(error_of([&] { check_plans(layer_with(RecipeKind::kDelayed), clash.all(), true); }),
              HasSubstr("DisableQuantizationGEMM"));
}

TEST(RecipeOverride, BadInputIsRefused) {
  EXPECT_THAT(
      error_of([] { LoadedFeatures(override_with("recipe: fp8, gemms: [fprop], tensors: [weight]")); }),
      HasSubstr("mxfp8"));
  EXPECT_THAT(error_of([] { LoadedFeatures(override_with("gemms: [fprop], tensors: [weight]")); }),
              HasSubstr("recipe"));
  const LoadedFeatures output(override_with("recipe: current, gemms: [fprop], tensors: [output]"));
  EXPECT_THAT(error_of([&] { output.front().check_layer(layer_with(RecipeKind::kNone)); }),
              HasSubstr("result of a GEMM"));
}

// codes that are gathered need one scale.
TEST(RecipeOverride, ALocalScaleOfGatheredCodesIsRefused) {
  run_loopback_ranks(2, [](Communicator& group) {
    LayerDescription layer = layer_with(RecipeKind::kNone);
    layer.parallel = ParallelMode::kColumn;
    layer.sequence_parallel = true;
    layer.tp_group = &group;
    const std::string tensors = ", amax_scope: local, gemms: [fprop], tensors: [activation, weight]";
    const LoadedFeatures current(override_with("recipe: current" + tensors));
    EXPECT_THAT(error_of([&] { current.front().check_layer(layer); }), HasSubstr("amax_scope local"));
    const LoadedFeatures blocks(override_with("recipe: mxfp8" + tensors));
    blocks.front().check_layer(layer);  // no scale of the tensor: nothing to share
  });
}

constexpr const char* kDelayed = R"(
s:
  enabled: true
  layers: {layer_types: [all]}
  transformer_engine:
    RecipeOverride: {enabled: true, recipe: delayed, gemms: [fprop], tensors: [activation, weight], start_step: 2}
)";

// The history fills before the override starts, is reduced over the ranks, and costs no collective for each
// tensor: amax 7 on rank 1, so the scale is 448 / 7 on both.
TEST(RecipeOverride, DelayedScalingHasAHistoryOfItsOwn) {
  testing::run_sessions({.ranks = 2, .sizes = {.tp = 2}, .yaml = kDelayed}, [](testing::SessionRank& self) {
    const LayerHandle handle = self.session.layer(self.layer("a.fc1"));
    const Tensor x =
        self.world.rank() == 0 ? Tensor::of<float>({1, 0.5F}, {1, 2}) : Tensor::of<float>({7, 3.5F}, {1, 2});
    for (int iteration = 0; iteration < 2; ++iteration) {
      testing::feed(handle, TensorKind::kActivation, x.view());
      testing::feed(handle, TensorKind::kWeight, x.view());
      self.session.step();
    }
    ASSERT_TRUE(handle.active());
    for (const TensorKind tensor : {TensorKind::kActivation, TensorKind::kWeight}) {
      const auto made =
          handle.quantizer(tensor)->quantize(x.view(), {.rowwise = true, .columnwise = false}, {});
      const auto* codes = dynamic_cast<const Float8Tensor*>(&member(*made, false));
      ASSERT_NE(codes, nullptr);
      EXPECT_EQ(codes->scale(), 64.0F);
    }
  });
}

}  // namespace
}  // namespace amaxscope
