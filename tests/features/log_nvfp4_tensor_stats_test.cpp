#include "features/log_nvfp4_tensor_stats.hpp"

#include <gmock/gmock.h>

#include <cmath>

#include "features/builtin.hpp"
#include "runtime/quantizers/quantizer_factory.hpp"
#include "tests/features/inspecting_fixture.hpp"

namespace amaxscope {
namespace {

using ::testing::ElementsAre;
using testing::FakeRegistration;
using testing::gemm_tensor;
using ::testing::HasSubstr;
using testing::inspect;
using ::testing::IsEmpty;
using testing::names_of;
using testing::value_of;

std::unique_ptr<Feature> nvfp4_feature(const std::string& stats) {
  const FeatureRegistry registry = builtin_features();
  Config config = load_config(
      "s: {enabled: true, layers: {layer_types: [all]}, transformer_engine: {LogNvfp4TensorStats: {enabled: "
      "true, tensors: [activation, output], stats: [" +
          stats + "]}}}",
      "test.yaml", registry);
  FeatureConfig& feature = config.sections.at(0).features.at(0);
  return registry.find(feature.name, false)->make(std::move(feature));
}

/// A block of ones, whose scale and codes are exact to a few ulp, and one of 10^-7: 10^-7 of the tensor's
/// amax, so the block's E4M3 scale is zero although every code is the largest.
Tensor tiny_block() {
  Tensor x(DType::kF32, {16, 16});
  for (std::size_t i = 0; i < 16; ++i) {
    x.values<float>()[i] = 1.0F;
    x.values<float>()[16 + i] = 1e-7F;
  }
  return x;
}

// S-14: those elements decode to zero, so they are underflows.
TEST(LogNvfp4TensorStats, AnElementUnderAZeroScaleIsAnUnderflow) {
  for (const RecipeKind recipe : {RecipeKind::kNone, RecipeKind::kDelayed, RecipeKind::kMxfp8}) {
    const auto feature = nvfp4_feature("underflows%, mse, sqnr, cosine, zero_blocks");
    const InspectedTensor tensor = gemm_tensor(TensorKind::kActivation, recipe);
    FakeRegistration registration;
    feature->register_tensor(tensor, registration);
    EXPECT_THAT(registration.skipped, IsEmpty());
    const Tensor x = tiny_block();
    inspect(*feature, tensor, x.view());
    const auto values = registration.values();
    EXPECT_EQ(value_of(values, "nvfp4_underflows%"), 100.0 * 16 / 256);
    EXPECT_NEAR(*value_of(values, "nvfp4_mse"), 16 * 1e-14 / 256, 1e-14);
    EXPECT_GT(*value_of(values, "nvfp4_sqnr"), 120.0);
    EXPECT_NEAR(*value_of(values, "nvfp4_cosine"), 1.0, 1e-12);
    EXPECT_EQ(value_of(values, "nvfp4_zero_blocks"), 14.0);
  }
}

// Under the recipe itself: the codes that the GEMM gets.
TEST(LogNvfp4TensorStats, RunningCodes) {
  const auto feature = nvfp4_feature("underflows%, underflows%_columnwise");
  const InspectedTensor tensor = gemm_tensor(TensorKind::kActivation, RecipeKind::kNvfp4);
  FakeRegistration registration;
  feature->register_tensor(tensor, registration);
  const Tensor x = tiny_block();
  QuantizerRequest request;
  request.recipe = RecipeKind::kNvfp4;
  request.tensor = TensorKind::kActivation;
  const Tensor zeros(DType::kF32, {16, 16});
  // Codes of zeros beside the original, so that what is measured can only be these codes.
  const auto codes =
      make_quantizer(request)->quantize(zeros.view(), {.rowwise = true, .columnwise = true}, {});
  inspect(*feature, tensor, x.view(), {.rowwise = codes.get(), .columnwise = codes.get()});
  const auto values = registration.values();
  EXPECT_EQ(value_of(values, "nvfp4_underflows%"), 100.0 * 32 / 256);
  EXPECT_GT(*value_of(values, "nvfp4_underflows%_columnwise"), 0.0);
}

// A preset asks one feature about every recipe.
TEST(LogNvfp4TensorStats, BareNamesOfLogFp8TensorStatsAreTheSameNumbers) {
  const InspectedTensor tensor = gemm_tensor(TensorKind::kActivation, RecipeKind::kNvfp4);
  QuantizerRequest request;
  request.recipe = RecipeKind::kNvfp4;
  request.tensor = TensorKind::kActivation;
  const Tensor x = tiny_block();
  const auto codes = make_quantizer(request)->quantize(x.view(), {.rowwise = true, .columnwise = true}, {});
  const auto values_of = [&](const std::unique_ptr<Feature>& feature) {
    FakeRegistration registration;
    feature->register_tensor(tensor, registration);
    EXPECT_THAT(registration.skipped, IsEmpty());
    inspect(*feature, tensor, x.view(), {.rowwise = codes.get(), .columnwise = codes.get()});
    std::map<std::string, double> values;
    for (const StatValue& value : registration.values()) values[value.name] = value.value;
    return values;
  };
  const std::string stats = "saturated%, saturated_energy%, flushed%, flushed_energy%, sqnr, zero_blocks";
  const auto bare = values_of(testing::te_feature(
      "LogFp8TensorStats", "tensors: [activation], stats: [" + stats + ", scale_inv_max, overflows%]"));
  const auto own = values_of(nvfp4_feature(stats));
  EXPECT_EQ(bare.at("flushed%"), 100.0 * 16 / 256);
  EXPECT_NEAR(bare.at("scale_inv_max"), 1.0 / 6, 1e-6) << "amax 1 is the code 6";
  EXPECT_EQ(bare.at("overflows%"), bare.at("saturated%"));
  ASSERT_EQ(own.size(), 6U);
  for (const auto& [name, value] : own) EXPECT_EQ(bare.at(name.substr(6)), value) << name;
}

TEST(LogNvfp4TensorStats, ResultsAreSkipped) {
  const auto feature = nvfp4_feature("mse");
  const InspectedTensor tensor = gemm_tensor(TensorKind::kOutput, RecipeKind::kNvfp4);
  FakeRegistration registration;
  feature->register_tensor(tensor, registration);
  EXPECT_THAT(registration.skipped, ElementsAre("nvfp4_mse"));
  EXPECT_FALSE(feature->inspect_tensor_enabled(tensor, 0).enabled);
}

TEST(LogNvfp4TensorStats, Names) {
  std::string reason;
  const auto name = parse_nvfp4_stat("mse_columnwise", reason);
  ASSERT_TRUE(name.has_value());
  EXPECT_EQ(name->recipe, RecipeKind::kNvfp4);
  EXPECT_EQ(name->prefix, "nvfp4_");
  EXPECT_EQ(name->stat, "mse");
  EXPECT_TRUE(name->columnwise);
  EXPECT_FALSE(parse_nvfp4_stat("nvfp4_mse", reason).has_value());
  EXPECT_THAT(reason, HasSubstr("ask for \"mse\""));
  reason.clear();
  EXPECT_FALSE(parse_nvfp4_stat("scale_inv_min", reason).has_value());
  EXPECT_EQ(reason, "");
}

}  // namespace
}  // namespace amaxscope
