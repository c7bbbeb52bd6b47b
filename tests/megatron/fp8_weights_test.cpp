// Weights that exist in FP8 only: what they are made of, what the debug runtime sees of them, what it
// refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/loopback_communicator.hpp"
#include "core/error.hpp"
#include "megatron/model_support.hpp"
#include "megatron/recorder.hpp"
#include "megatron/trainer.hpp"

namespace amaxscope::megatron {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using testing::random_batch;
using testing::random_tensor;
using testing::Seen;
using testing::session_options;
using testing::to_doubles;
using testing::with_recorder;

TrainerOptions options(RecipeKind recipe, bool fp8_weights) {
  TrainerOptions options;
  options.model = testing::small_model();
  options.model.hidden = 64;
  options.model.sequence = 32;
  options.recipe = recipe;
  options.fp8_weights = fp8_weights;
  options.micro_batches = 2;
  options.learning_rate.peak = 3e-3;
  return options;
}

/// Digests of two tensor-parallel ranks after three iterations.
std::vector<std::uint64_t> train(const TrainerOptions& options, const std::string& yaml) {
  std::vector<std::uint64_t> digests(2);
  run_loopback_ranks(2, [&](Communicator& tp) {
    std::vector<Seen> seen;
    const FeatureRegistry registry = with_recorder(seen);
    std::unique_ptr<DebugSession> session;
    if (!yaml.empty()) {
      session = std::make_unique<DebugSession>(
          registry, SessionGroups{.world = &tp, .tp = &tp, .dp_cp = nullptr, .stage = &tp},
          session_options(yaml));
    }
    Trainer trainer(options, {.world = &tp, .tp = &tp, .dp = nullptr, .amax = &tp}, session.get());
    trainer.run(
        3,
        [](std::int64_t iteration, int microbatch) {
          return random_batch(static_cast<std::uint64_t>(iteration * 10 + microbatch), 64, 64);
        },
        [](const StepReport&) {});
    if (session != nullptr) session->close();
    digests[static_cast<std::size_t>(tp.rank())] = trainer.digest();
  });
  return digests;
}

TEST(Fp8Weights, TrainAsWeightsThatAreCastEveryStep) {
  for (const RecipeKind recipe : {RecipeKind::kDelayed, RecipeKind::kCurrent, RecipeKind::kMxfp8,
                                  RecipeKind::kBlock, RecipeKind::kNvfp4}) {
    const std::vector<std::uint64_t> cast = train(options(recipe, false), "");
    EXPECT_EQ(train(options(recipe, true), ""), cast) << to_string(recipe);
    EXPECT_EQ(train(options(recipe, true), testing::kRecordAll), cast) << "observing changes nothing";
  }
}

TEST(Fp8Weights, ExistAsCodesAndMasterOnly) {
  Trainer trainer(options(RecipeKind::kDelayed, true), {}, nullptr);
  for (const Parameter* const parameter : trainer.model().parameters()) {
    const bool is_gemm_weight =
        parameter->name.find(".linear_") != std::string::npos && parameter->name.ends_with(".weight");
    EXPECT_EQ(parameter->compute.defined(), !is_gemm_weight) << parameter->name;
  }
  EXPECT_THROW(Trainer(options(RecipeKind::kNone, true), {}, nullptr), Error);
}

// Under scale 1 (amax 448) E4M3 steps by 2 from 16 on: 17.01 is nearer to 18, but as BF16 it is 17, a tie
// that goes to 16.
TEST(Fp8Weights, AreTheCastOfTheMasterAndNotOfARoundedCopy) {
  const auto output = [](bool fp8_weights) {
    LayerContext context;
    context.recipe = RecipeKind::kCurrent;
    context.dtype = DType::kBF16;
    context.fp8_weights = fp8_weights;
    ColumnParallelLinear layer(context,
                               {.name = "fc", .number = 1, .inputs = 2, .outputs = 1, .bias = false});
    layer.weight().master.values<float>()[0] = 448.0F;
    layer.weight().master.values<float>()[1] = 17.01F;
    layer.weight().refresh_compute();
    Tensor x(DType::kBF16, {1, 2});
    x.values<BF16>()[1] = to_bf16(1.0F);
    return to_doubles(layer.forward(std::move(x), {}, nullptr).view())[0];
  };
  EXPECT_EQ(output(true), 18.0);
  EXPECT_EQ(output(false), 16.0);
}

TEST(Fp8Weights, AreShownAsCodesOnceAStepAndComparedWithTheirMasterLater) {
  std::vector<Seen> seen;
  std::vector<Seen> reused;
  const FeatureRegistry registry = with_recorder(seen, &reused);
  DebugSession session(registry, {}, session_options(testing::kRecordAll));
  LayerContext context;
  context.recipe = RecipeKind::kCurrent;
  context.session = &session;
  context.fp8_weights = true;
  RowParallelLinear layer(context, {.name = "fc", .number = 1, .inputs = 2, .outputs = 2});
  for (float& value : layer.weight().master.values<float>()) value = 0.5F;
  for (const int microbatch : {0, 1}) {
    std::ignore = layer.forward(random_tensor(DType::kF32, {1, 2}, 1),
                                {.phase = Phase::kForward, .microbatch = microbatch}, nullptr);
  }
  ASSERT_EQ(seen.at(1).what, "fc weight replicated forward 0");
  EXPECT_TRUE(seen[1].values.empty()) << "there is no original";
  EXPECT_THAT(seen[1].rowwise, Each(0.5));
  EXPECT_THAT(seen[1].columnwise, Each(0.5));
  EXPECT_EQ(seen.size(), 5U) << "activation, weight, output; activation, output";
  ASSERT_EQ(reused.size(), 1U);
  EXPECT_THAT(reused[0].values, Each(0.5));
  EXPECT_THAT(reused[0].rowwise, Each(0.5));
  session.close();
}

TEST(Fp8Weights, RefuseAFeatureThatNeedsTheWeightInHighPrecision) {
  constexpr const char* kDisable = R"(
off:
  enabled: True
  layers: {layer_name_regex_pattern: fc}
  transformer_engine:
    DisableQuantizationGEMM: {enabled: True, gemms: [dgrad]}
)";
  const FeatureRegistry registry = builtin_features();
  DebugSession session(registry, {}, session_options(kDisable));
  LayerContext context;
  context.recipe = RecipeKind::kDelayed;
  DelayedScalingState delayed({}, nullptr);
  context.delayed = &delayed;
  context.session = &session;
  context.fp8_weights = true;
  RowParallelLinear layer(context, {.name = "fc", .number = 1, .inputs = 2, .outputs = 2});
  try {
    std::ignore = layer.forward(random_tensor(DType::kF32, {1, 2}, 1), {}, nullptr);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("layer fc: weight exists in FP8 only"),
                                    HasSubstr("DisableQuantizationGEMM"), HasSubstr("dgrad")));
  }
}

}  // namespace
}  // namespace amaxscope::megatron
