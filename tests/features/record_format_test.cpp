// cases.md case 34: every record names the format of what the GEMM got, by the quantizer that ran.
#include <gmock/gmock.h>

#include "runtime/quantizers/quantizer_factory.hpp"
#include "tests/runtime/session/session_fixture.hpp"

namespace amaxscope::testing {
namespace {

/// Formats of the tensors of one layer under a recipe, one record of LogTensorStats each.
struct Formats {
  std::map<std::string, std::string> of_tensor;
  std::map<std::string, std::map<std::string, std::string>> of_stat;  ///< tensor, statistic
};

Formats formats_under(RecipeKind recipe, const std::string& more_features,
                      const std::string& stats = "mxfp8_mse") {
  const std::string yaml =
      "all:\n  enabled: true\n  layers: {layer_types: [all]}\n  transformer_engine:\n"
      "    LogTensorStats: {enabled: true, tensors: [activation, weight, gradient, output], "
      "stats: [max]}\n"
      "    LogFp8TensorStats: {enabled: true, tensors: [activation, gradient], stats: [" +
      stats + "]}\n" + more_features;
  const auto collected = run_sessions({.ranks = 1, .yaml = yaml}, [&](SessionRank& self) {
    DelayedScalingState delayed({}, nullptr);
    LayerDescription layer = self.layer("fc1");
    layer.recipe = recipe;
    const auto parent = [&](TensorKind tensor) -> std::shared_ptr<Quantizer> {
      if (recipe == RecipeKind::kNone) return nullptr;
      return make_quantizer({.recipe = recipe,
                             .tensor = tensor,
                             .name = "fc1." + std::string(to_string(tensor)),
                             .delayed = &delayed});
    };
    const LayerHandle handle = self.session.layer(layer, {.activation = parent(TensorKind::kActivation),
                                                          .weight = parent(TensorKind::kWeight),
                                                          .gradient = parent(TensorKind::kGradient)});
    Tensor x = Tensor::of<float>(std::vector<float>(32 * 32, 1.0F), {32, 32});
    for (const TensorKind tensor : {TensorKind::kActivation, TensorKind::kWeight, TensorKind::kGradient}) {
      feed(handle, tensor, x.view(), {.phase = training_phase(tensor)});
    }
    if (DebugQuantizer* output = handle.quantizer(TensorKind::kOutput)) {
      output->process_gemm_output(x.mutable_view(), {});
    }
    self.session.step();
  });
  Formats formats;
  for (const char* tensor : {"activation", "weight", "gradient", "output"}) {
    const StatRecord record = collected->of(0, "fc1", tensor).at(0);
    formats.of_tensor[tensor] = record.format;
    for (const StatValue& value : record.stats) formats.of_stat[tensor][value.name] = value.format;
  }
  return formats;
}

TEST(RecordFormat, OfEveryRecipe) {
  struct Expected {
    RecipeKind recipe;
    std::string forward;
    std::string gradient;
  };
  for (const Expected& expected :
       {Expected{RecipeKind::kNone, "high precision", "high precision"},
        Expected{RecipeKind::kDelayed, "E4M3", "E5M2"}, Expected{RecipeKind::kCurrent, "E4M3", "E5M2"},
        Expected{RecipeKind::kMxfp8, "E4M3+E8M0 scales", "E4M3+E8M0 scales"},
        Expected{RecipeKind::kBlock, "E4M3+F32 scales", "E4M3+F32 scales"},
        Expected{RecipeKind::kNvfp4, "E2M1+E4M3 scales", "E2M1+E4M3 scales"}}) {
    const Formats found = formats_under(expected.recipe, "");
    EXPECT_EQ(found.of_tensor.at("activation"), expected.forward);
    EXPECT_EQ(found.of_tensor.at("weight"), expected.forward);
    EXPECT_EQ(found.of_tensor.at("gradient"), expected.gradient);
    EXPECT_EQ(found.of_tensor.at("output"), "") << "a result is no operand";
  }
}

TEST(RecordFormat, AnOverrideIsWhatRan) {
  const Formats found = formats_under(RecipeKind::kDelayed,
                                      "    RecipeOverride: {enabled: true, recipe: nvfp4, gemms: [fprop, "
                                      "dgrad, wgrad], tensors: [activation, "
                                      "weight, gradient]}\n");
  for (const char* tensor : {"activation", "weight", "gradient"})
    EXPECT_EQ(found.of_tensor.at(tensor), "E2M1+E4M3 scales") << tensor;
}

TEST(RecordFormat, DirectionsThatDiffer) {
  const Formats found =
      formats_under(RecipeKind::kCurrent, "    DisableQuantizationGEMM: {enabled: true, gemms: [wgrad]}\n");
  EXPECT_EQ(found.of_tensor.at("activation"), "rowwise E4M3, columnwise high precision");
  EXPECT_EQ(found.of_tensor.at("weight"), "E4M3");
  EXPECT_EQ(found.of_tensor.at("gradient"), "rowwise E5M2, columnwise high precision");
}

TEST(RecordFormat, FakeQuantNamesWhatItWentThrough) {
  for (const auto& [name, format] :
       std::map<std::string, std::string>{{"FP8E5M2", "E5M2, dequantized"},
                                          {"MXFP8E5M2", "E5M2+E8M0 scales, dequantized"},
                                          {"NVFP4", "E2M1+E4M3 scales, dequantized"}}) {
    const Formats found =
        formats_under(RecipeKind::kDelayed, "    FakeQuant: {enabled: true, quant_format: " + name +
                                                ", gemms: [fprop, wgrad], tensors: [activation]}\n");
    EXPECT_EQ(found.of_tensor.at("activation"), format);
  }
}

TEST(RecordFormat, AWhatIfHasItsOwn) {
  const Formats found = formats_under(
      RecipeKind::kDelayed, "",
      "mse, fp8_current_scaling_mse, mxfp8_mse, fp8_delayed_scaling_mse, fp8_block_scaling_mse");
  const auto& activation = found.of_stat.at("activation");
  EXPECT_EQ(activation.at("mse"), "") << "that of the record";
  EXPECT_EQ(activation.at("max"), "");
  EXPECT_EQ(activation.at("mxfp8_mse"), "E4M3+E8M0 scales");
  EXPECT_EQ(activation.at("fp8_block_scaling_mse"), "E4M3+F32 scales");
  EXPECT_EQ(activation.at("fp8_current_scaling_mse"), "E4M3");
  const auto& gradient = found.of_stat.at("gradient");
  EXPECT_EQ(gradient.at("fp8_current_scaling_mse"), "E5M2");
  EXPECT_EQ(gradient.at("fp8_delayed_scaling_mse"), "E5M2");
}

}  // namespace
}  // namespace amaxscope::testing
