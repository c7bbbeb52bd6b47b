#include "features/trends.hpp"

#include <gmock/gmock.h>

#include <cmath>

#include "core/error.hpp"
#include "kernels/cast.hpp"
#include "runtime/quantizers/current_scaling.hpp"
#include "runtime/quantizers/delayed_scaling.hpp"
#include "tests/features/inspecting_fixture.hpp"

namespace amaxscope {
namespace {

using ::testing::ElementsAre;
using testing::FakeRegistration;
using testing::Feed;
using testing::flags_of;
using testing::gemm_tensor;
using ::testing::HasSubstr;
using testing::inspect;
using testing::load_error;
using testing::reduce_step;
using testing::row;
using testing::te_feature;
using testing::value_of;

/// Registers the tensor, feeds x and says what the step reports.
std::vector<StatValue> step(Feature& feature, const InspectedTensor& tensor, FakeRegistration& registration,
                            const TensorView& x, std::int64_t iteration, const Feed& feed = {}) {
  if (registration.declared.empty()) feature.register_tensor(tensor, registration);
  inspect(feature, tensor, x, feed);
  return reduce_step({registration.declared.at(0).cell.train.get()}, iteration);
}

TEST(Trends, HeadroomToTheLargestNumberOfTheType) {
  const std::vector<std::pair<DType, double>> largest = {
      {DType::kF32, std::log2(static_cast<double>(std::numeric_limits<float>::max()))},
      {DType::kF16, std::log2(65504.0)},
      {DType::kBF16, std::log2(0x1.FEp127)}};
  for (const auto& [dtype, bits] : largest) {
    const auto feature = te_feature("Trends", "tensors: [output]");
    const InspectedTensor tensor = gemm_tensor(TensorKind::kOutput);
    FakeRegistration registration;
    Tensor x(dtype, Shape{1, 2});
    convert(row({1, -8}), x);
    EXPECT_NEAR(*value_of(step(*feature, tensor, registration, x, 0), "headroom_bits"), bits - 3, 1e-5);
    EXPECT_FALSE(feature->alters_numerics());
  }
}

TEST(Trends, HeadroomUnderADelayedScale) {
  const auto feature = te_feature("Trends", "tensors: [activation]");
  const InspectedTensor tensor = gemm_tensor(TensorKind::kActivation, RecipeKind::kDelayed);
  FakeRegistration registration;
  DelayedScalingState state({}, nullptr);
  Float8Quantizer quantizer(state, state.add("a.activation", DType::kE4M3));
  const auto at = [&](float amax, std::int64_t iteration) {
    const Tensor x = row({1, -amax});
    const auto codes = quantizer.quantize(x, {true, false}, {});
    auto values =
        step(*feature, tensor, registration, x, iteration, {.rowwise = codes.get(), .quantizer = &quantizer});
    state.update();
    return values;
  };
  const auto first = at(7, 0);  // scale 1: 448 is six bits above 7
  EXPECT_DOUBLE_EQ(*value_of(first, "headroom_bits"), 6.0);
  EXPECT_THAT(flags_of(first, "headroom_bits"), ElementsAre("no_history"));
  const auto second = at(14, 1);  // scale 64: what it holds is 7
  EXPECT_DOUBLE_EQ(*value_of(second, "headroom_bits"), -1.0);
  EXPECT_THAT(flags_of(second, "headroom_bits"), ElementsAre());
  const auto third = at(14, 2);  // scale 32: 14
  EXPECT_DOUBLE_EQ(*value_of(third, "headroom_bits"), 0.0);
  EXPECT_EQ(value_of(third, "steps_to_saturation"), 0.0) << "the scale stays as it is while the amax grows";
}

TEST(Trends, UnderflowsAreCountedInTheCodes) {
  const auto feature = te_feature("Trends", "tensors: [activation], alarm: underflow, underflow_bound: 30");
  const InspectedTensor tensor = gemm_tensor(TensorKind::kActivation, RecipeKind::kCurrent);
  FakeRegistration registration;
  Float8CurrentScalingQuantizer quantizer(DType::kE4M3, {}, {});
  const auto findings_for = [&](const Tensor& x, std::int64_t iteration) {
    const auto codes = quantizer.quantize(x, {true, false}, {});
    if (registration.declared.empty()) feature->register_tensor(tensor, registration);
    inspect(*feature, tensor, x, {.rowwise = codes.get(), .quantizer = &quantizer});
    StatAccumulator* trend = registration.declared.at(0).cell.train.get();
    const std::vector<StatAccumulator*> ranks = {trend};
    const auto reduced = testing::simulate(ranks);
    trend->advance(reduced.view(), iteration);
    const auto found = trend->findings(reduced.view());
    trend->reset();
    return found;
  };
  // Under a scale that maps 448 to 448 whatever is at most 2^-10 in magnitude is rounded to 0.
  EXPECT_TRUE(findings_for(row({448, 0x1p-11F, 0, 1}), 0).empty()) << "one of four; a zero is none";
  const auto found = findings_for(row({448, 0x1p-11F, -0x1p-12F, 1}), 1);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_THAT(found[0].what, HasSubstr("50 % of the elements"));
}

TEST(Trends, AScaleOfThisVeryAmaxIsNeverSaturated) {
  const auto feature = te_feature("Trends", "tensors: [gradient], alarm: saturation");
  const InspectedTensor tensor = gemm_tensor(TensorKind::kGradient, RecipeKind::kCurrent);
  FakeRegistration registration;
  Float8CurrentScalingQuantizer quantizer(DType::kE5M2, {}, {});
  for (int iteration = 0; iteration < 4; ++iteration) {
    const Tensor x = row({1, std::ldexp(7.0F, iteration)});
    const auto codes = quantizer.quantize(x, {true, true}, {});
    const auto values =
        step(*feature, tensor, registration, x, iteration, {.rowwise = codes.get(), .quantizer = &quantizer});
    EXPECT_DOUBLE_EQ(*value_of(values, "headroom_bits"), 0.0);
    EXPECT_FALSE(value_of(values, "steps_to_saturation").has_value());
    if (iteration >= 2) {
      EXPECT_DOUBLE_EQ(*value_of(values, "amax_log2_slope"), 1.0);
    }
  }
}

TEST(Trends, WindowAndScheduleOfATensor) {
  const auto feature = te_feature(
      "Trends", "freq: 5, tensors_struct: [{tensor: weight, window: 4}, {tensor: activation, freq: 2}]");
  const InspectedTensor weight = gemm_tensor(TensorKind::kWeight);
  const InspectedTensor gradient = gemm_tensor(TensorKind::kGradient);
  EXPECT_TRUE(feature->inspect_tensor_enabled(weight, 5).enabled);
  EXPECT_FALSE(feature->inspect_tensor_enabled(weight, 4).enabled);
  EXPECT_FALSE(feature->inspect_tensor_enabled(gradient, 0).enabled);
  FakeRegistration registration;
  std::vector<StatValue> values;
  std::int64_t iteration = 0;
  for (const float amax : {1024.0F, 1.0F, 2.0F, 4.0F, 8.0F}) {
    values = step(*feature, weight, registration, row({amax}).view(), iteration);
    iteration += 5;
  }
  EXPECT_DOUBLE_EQ(*value_of(values, "amax_log2_slope"), 0.2) << "the 1024 is out of the window";
}

TEST(Trends, WeightsCountOnceAndRecomputesNotAtAll) {
  const auto feature = te_feature("Trends", "tensors: [weight]");
  const InspectedTensor weight = gemm_tensor(TensorKind::kWeight);
  FakeRegistration registration;
  feature->register_tensor(weight, registration);
  inspect(*feature, weight, row({64.0F}).view(), {.phase = Phase::kRecompute});
  EXPECT_FALSE(registration.ran());
  inspect(*feature, weight, row({1.0F}).view());
  inspect(*feature, weight, row({1024.0F}).view());
  const auto values = reduce_step({registration.declared[0].cell.train.get()}, 0);
  EXPECT_NEAR(*value_of(values, "headroom_bits"), 128.0, 1e-4);
}

TEST(Trends, MistakesAreErrors) {
  const auto error = [](const std::string& keys) {
    return load_error(
        "s: {enabled: true, layers: {layer_types: [all]}, transformer_engine: {Trends: {enabled: "
        "true, tensors: [weight], " +
        keys + "}}}");
  };
  EXPECT_THAT(error("alarm: [amax_jmp]"), HasSubstr("did you mean \"amax_jump\""));
  EXPECT_THAT(error("alarms: [amax_jump]"), HasSubstr("did you mean \"alarm\""));
  EXPECT_THAT(error("window: 3"), HasSubstr("window must be 4 or more"));
  EXPECT_THAT(error("window: long"), HasSubstr("window must be an integer"));
  const auto feature = te_feature("Trends", "tensors: [weight], window: 257");
  FakeRegistration registration;
  const InspectedTensor tensor = gemm_tensor(TensorKind::kWeight);
  EXPECT_THROW(feature->register_tensor(tensor, registration), Error);
}

}  // namespace
}  // namespace amaxscope
