// The weight of a step is made and inspected once, by the plan of the iteration that it is made in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/layers/linear.hpp"
#include "megatron/model_support.hpp"
#include "megatron/recorder.hpp"
#include "runtime/session.hpp"

namespace amaxscope::megatron {
namespace {

using ::testing::Each;
using testing::random_tensor;
using testing::session_options;
using testing::to_doubles;

struct Inspection {
  std::int64_t iteration = 0;
  std::vector<double> original;
  std::vector<double> rowwise;
};

/// Keeps fprop in high precision in even iterations and quantizes it in odd ones; counts what it is asked.
class Alternating final : public Feature {
 public:
  Alternating(FeatureConfig config, std::vector<Inspection>& weights, std::map<std::int64_t, int>& asked)
      : Feature(std::move(config)), weights_(weights), asked_(asked) {}
  [[nodiscard]] bool alters_numerics() const override { return true; }
  [[nodiscard]] Decision fp8_gemm_enabled(const LayerDescription&, Gemm gemm,
                                          std::int64_t iteration) const override {
    return {gemm != Gemm::kFprop || iteration % 2 == 1, iteration + 1};
  }
  [[nodiscard]] Decision inspect_tensor_enabled(const InspectedTensor& tensor,
                                                std::int64_t iteration) const override {
    if (tensor.kind == TensorKind::kWeight) ++asked_[iteration];
    return {tensor.kind == TensorKind::kWeight, iteration + 1};
  }
  void inspect_tensor(const InspectContext& context) override {
    weights_.push_back({context.iteration, to_doubles(context.x),
                        to_doubles(context.rowwise->dequantize(DType::kF32, Direction::kRowwise).view())});
  }

 private:
  std::vector<Inspection>& weights_;
  std::map<std::int64_t, int>& asked_;
};

constexpr const char* kYaml = R"(
all:
  enabled: True
  layers: {layer_name_regex_pattern: .*}
  transformer_engine:
    Alternating: {enabled: True}
)";

FeatureRegistry with_alternating(std::vector<Inspection>& weights, std::map<std::int64_t, int>& asked) {
  FeatureRegistry registry;
  registry.add({.schema = {.name = "Alternating", .doc = "Changes its plan in every iteration."},
                .base_namespace = false,
                .make = [&](FeatureConfig config) {
                  return std::make_unique<Alternating>(std::move(config), weights, asked);
                }});
  return registry;
}

// Under scale 448 (amax 1) 0.3 is 134.4, between the E4M3 codes 128 and 144: 128.
constexpr double kQuantized = 128.0 / 448.0;

TEST(WeightCache, ConsecutiveDebugIterationsUseTheirOwnPlans) {
  std::vector<Inspection> weights;
  std::map<std::int64_t, int> asked;
  const FeatureRegistry registry = with_alternating(weights, asked);
  DebugSession session(registry, {}, session_options(kYaml));
  LayerContext context;
  context.session = &session;
  context.recipe = RecipeKind::kCurrent;
  ColumnParallelLinear layer(context, {.name = "fc", .number = 1, .inputs = 2, .outputs = 1, .bias = false});
  std::vector<double> outputs;
  for (std::int64_t iteration = 0; iteration < 4; ++iteration) {
    layer.weight().master.values<float>()[0] = 1.0F;
    layer.weight().master.values<float>()[1] = 0.3F;
    layer.weight().refresh_compute();
    for (const int microbatch : {0, 1, 2}) {
      Linear::Saved saved;
      const Tensor y = layer.forward(Tensor::of<float>({0.0F, 1.0F}, {1, 2}),
                                     {.phase = Phase::kForward, .microbatch = microbatch}, &saved);
      outputs.push_back(to_doubles(y.view())[0]);
      std::ignore = layer.backward(random_tensor(DType::kF32, {1, 1}, 2),
                                   {.phase = Phase::kBackward, .microbatch = microbatch}, saved);
    }
    session.step();
  }
  ASSERT_EQ(weights.size(), 4U) << "once a step";
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(weights[i].iteration, static_cast<std::int64_t>(i));
    EXPECT_NEAR(weights[i].original[1], 0.3, 1e-7);
    const double expected = i % 2 == 0 ? 0.3 : kQuantized;
    EXPECT_NEAR(weights[i].rowwise[1], expected, 1e-7) << i;
    for (std::size_t microbatch = 0; microbatch < 3; ++microbatch)
      EXPECT_NEAR(outputs[i * 3 + microbatch], expected, 1e-7) << i << " " << microbatch;
  }
  // Planned once an iteration, the next one looked at once ahead; not once a micro-batch.
  for (const auto& [iteration, times] : asked) EXPECT_LE(times, 2) << iteration;
  session.close();
}

TEST(WeightCache, StatisticsOfWeightsCountOnceAStep) {
  std::vector<Inspection> weights;
  std::map<std::int64_t, int> asked;
  const FeatureRegistry registry = with_alternating(weights, asked);
  DebugSession session(registry, {}, session_options(kYaml));
  LayerContext context;
  context.session = &session;
  RowParallelLinear layer(context, {.name = "fc", .number = 1, .inputs = 2, .outputs = 2});
  initialize_constant(layer.weight(), 5);
  for (const int microbatch : {0, 1, 2}) {
    std::ignore = layer.forward(random_tensor(DType::kF32, {1, 2}, 1),
                                {.phase = Phase::kForward, .microbatch = microbatch}, nullptr);
  }
  ASSERT_EQ(weights.size(), 1U);
  EXPECT_THAT(weights[0].original, Each(5.0));
  session.close();
}

}  // namespace
}  // namespace amaxscope::megatron
