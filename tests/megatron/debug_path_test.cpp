// Layers under a debug session: the order of hooks and what each sees.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/loopback_communicator.hpp"
#include "megatron/model_support.hpp"
#include "megatron/recorder.hpp"
#include "megatron/trainer.hpp"

namespace amaxscope::megatron {
namespace {

using ::testing::ElementsAre;
using testing::names;
using testing::random_batch;
using testing::random_tensor;
using testing::Seen;
using testing::session_options;
using testing::to_doubles;
using testing::with_recorder;

constexpr const char* kRecordEverything = R"(
all:
  enabled: True
  layers:
    layer_name_regex_pattern: .*
  transformer_engine:
    Recorder:
      enabled: True
)";

TEST(DebugPath, HooksComeInTheOrderOfTheGemms) {
  std::vector<Seen> seen;
  const FeatureRegistry registry = with_recorder(seen);
  DebugSession session(registry, {}, session_options(kRecordEverything));
  LayerContext context;
  context.session = &session;
  context.recipe = RecipeKind::kCurrent;
  ColumnParallelLinear layer(context, {.name = "fc", .number = 1, .inputs = 4, .outputs = 4});
  const auto micro_batch = [&](int index) {
    Linear::Saved saved;
    std::ignore = layer.forward(random_tensor(DType::kF32, {2, 4}, 1),
                                {.phase = Phase::kForward, .microbatch = index}, &saved);
    std::ignore = layer.backward(random_tensor(DType::kF32, {2, 4}, 2),
                                 {.phase = Phase::kBackward, .microbatch = index}, saved);
  };
  micro_batch(0);
  micro_batch(1);
  EXPECT_THAT(names(seen), ElementsAre("fc activation replicated forward 0", "fc weight replicated forward 0",
                                       "fc output replicated forward 0", "fc gradient replicated backward 0",
                                       "fc dgrad replicated backward 0", "fc wgrad replicated backward 0",
                                       // The weight is quantized once a step.
                                       "fc activation replicated forward 1", "fc output replicated forward 1",
                                       "fc gradient replicated backward 1", "fc dgrad replicated backward 1",
                                       "fc wgrad replicated backward 1"));
  // Both micro-batches are alike: each sees its own wgrad, not the running sum in the gradient.
  EXPECT_EQ(seen[5].values, seen[10].values);
  const std::vector<double> gradient = to_doubles(layer.weight().gradient.view());
  for (std::size_t i = 0; i < gradient.size(); ++i) EXPECT_EQ(gradient[i], 2 * seen[5].values[i]);
  session.step();
  seen.clear();
  micro_batch(0);
  EXPECT_TRUE(seen.empty()) << "nothing is due in iteration 1";
  session.step();
  micro_batch(0);
  EXPECT_EQ(seen.size(), 6U) << "the weight comes back when the layer does";
  std::ignore =
      layer.forward(random_tensor(DType::kF32, {2, 4}, 1), {.phase = Phase::kEval, .microbatch = 0}, nullptr);
  EXPECT_EQ(seen[6].what, "fc activation replicated eval 0");
  EXPECT_EQ(seen.size(), 9U);
  session.close();
}

// Q-16: in the reference a modified wgrad has no effect when it was added to the main gradient already.
TEST(DebugPath, AModifiedWgradIsWhatTheGradientGets) {
  constexpr const char* kFakeWgrad = R"(
wgrad:
  enabled: True
  layers: {layer_name_regex_pattern: fc}
  transformer_engine:
    FakeQuant: {enabled: True, quant_format: FP8E4M3, gemms: [wgrad], tensors: [wgrad]}
)";
  const FeatureRegistry registry = builtin_features();
  DebugSession session(registry, {}, session_options(kFakeWgrad));
  LayerContext context;
  context.session = &session;
  ColumnParallelLinear layer(context, {.name = "fc", .number = 1, .inputs = 2, .outputs = 1, .bias = false});
  for (const int microbatch : {0, 1}) {
    Linear::Saved saved;
    std::ignore = layer.forward(Tensor::of<float>({448.0F, 17.0F}, {1, 2}),
                                {.phase = Phase::kForward, .microbatch = microbatch}, &saved);
    const Tensor dy = Tensor::of<float>({1.0F}, {1, 1});
    std::ignore = layer.backward(dy, {.phase = Phase::kBackward, .microbatch = microbatch}, saved);
  }
  // wgrad is dy x = [448, 17]; under scale 1 the E4M3 grid around 17 has steps of 2, and the tie goes to 16.
  EXPECT_THAT(to_doubles(layer.weight().gradient.view()), ElementsAre(896, 32));
  session.close();
}

TEST(DebugPath, AWeightThatChangedIsSeenAsItIsNow) {
  std::vector<Seen> seen;
  const FeatureRegistry registry = with_recorder(seen);
  DebugSession session(registry, {}, session_options(kRecordEverything));
  LayerContext context;
  context.session = &session;
  context.recipe = RecipeKind::kCurrent;
  RowParallelLinear layer(context, {.name = "fc", .number = 1, .inputs = 2, .outputs = 2});
  for (const float value : {0.5F, 0.25F, 0.125F, 2.0F}) {
    initialize_constant(layer.weight(), value);
    seen.clear();
    std::ignore = layer.forward(random_tensor(DType::kF32, {1, 2}, 1), {}, nullptr);
    if (session.iteration() != 1) {
      EXPECT_EQ(seen.at(1).what, "fc weight replicated forward 0");
      EXPECT_THAT(seen.at(1).values, ::testing::Each(value));
      EXPECT_THAT(seen.at(1).rowwise, ::testing::Each(value));
    }
    session.step();
  }
  session.close();
}

TEST(DebugPath, ACachedWeightIsShownAtEveryFurtherUse) {
  std::vector<Seen> seen;
  std::vector<Seen> reused;
  const FeatureRegistry registry = with_recorder(seen, &reused);
  DebugSession session(registry, {}, session_options(kRecordEverything));
  LayerContext context;
  context.session = &session;
  context.recipe = RecipeKind::kCurrent;
  RowParallelLinear layer(context, {.name = "fc", .number = 1, .inputs = 2, .outputs = 2});
  initialize_constant(layer.weight(), 0.5);
  std::vector<Linear::Saved> saved(2);
  for (const int index : {0, 1}) {
    std::ignore =
        layer.forward(random_tensor(DType::kF32, {1, 2}, 1), {.phase = Phase::kForward, .microbatch = index},
                      &saved[static_cast<std::size_t>(index)]);
  }
  for (const int index : {0, 1}) {
    std::ignore = layer.backward(random_tensor(DType::kF32, {1, 2}, 1),
                                 {.phase = Phase::kBackward, .microbatch = index},
                                 saved[static_cast<std::size_t>(index)]);
  }
  EXPECT_THAT(names(reused), ElementsAre("fc weight replicated forward 1", "fc weight replicated backward 0",
                                         "fc weight replicated backward 1"));
  // A weight that changed under the cached operand: the use shows both.
  initialize_constant(layer.weight(), 0.25);
  std::ignore = layer.forward(random_tensor(DType::kF32, {1, 2}, 1),
                              {.phase = Phase::kForward, .microbatch = 2}, nullptr);
  EXPECT_THAT(reused.back().values, ::testing::Each(0.25));
  EXPECT_THAT(reused.back().rowwise, ::testing::Each(0.5));
  EXPECT_THAT(reused.back().columnwise, ::testing::Each(0.5));
  session.step();
  reused.clear();
  std::ignore = layer.forward(random_tensor(DType::kF32, {1, 2}, 1),
                              {.phase = Phase::kForward, .microbatch = 1}, nullptr);
  EXPECT_TRUE(reused.empty()) << "nothing is due in iteration 1";
  session.close();
}

TEST(DebugPath, ShapesAndLayoutsUnderSequenceParallelism) {
  std::vector<std::vector<Seen>> seen(2);
  run_loopback_ranks(2, [&](Communicator& tp) {
    const FeatureRegistry registry = with_recorder(seen[static_cast<std::size_t>(tp.rank())]);
    DebugSession session(registry, {.world = &tp, .tp = &tp, .dp_cp = nullptr, .stage = &tp},
                         session_options(kRecordEverything));
    LayerContext context;
    context.tp = &tp;
    context.session = &session;
    context.recipe = RecipeKind::kCurrent;
    context.sequence_parallel = true;
    ColumnParallelLinear fc1(context, {.name = "fc1", .number = 1, .inputs = 4, .outputs = 8});
    RowParallelLinear fc2(context, {.name = "fc2", .number = 1, .inputs = 8, .outputs = 4});
    Linear::Saved saved1;
    Linear::Saved saved2;
    const std::uint64_t seed = static_cast<std::uint64_t>(tp.rank());
    Tensor hidden = fc1.forward(random_tensor(DType::kF32, {3, 4}, seed), {}, &saved1);
    EXPECT_EQ(hidden.shape(), Shape({6, 4}));
    const Tensor y = fc2.forward(std::move(hidden), {}, &saved2);
    EXPECT_EQ(y.shape(), Shape({3, 4}));
    const TensorMoment backward{.phase = Phase::kBackward, .microbatch = 0};
    const Tensor dhidden = fc2.backward(random_tensor(DType::kF32, {3, 4}, 10 + seed), backward, saved2);
    EXPECT_EQ(dhidden.shape(), Shape({6, 4}));
    EXPECT_EQ(fc1.backward(dhidden.view(), backward, saved1).shape(), Shape({3, 4}));
    session.step();
    session.close();
  });
  const std::vector<std::pair<std::string, Shape>> expected = {
      {"fc1 activation shard0 forward 0", {3, 4}}, {"fc1 weight shard0 forward 0", {4, 4}},
      {"fc1 output shard1 forward 0", {6, 4}},     {"fc2 activation shard1 forward 0", {6, 4}},
      {"fc2 weight shard1 forward 0", {4, 4}},     {"fc2 output partial forward 0", {6, 4}},
      {"fc2 gradient shard0 backward 0", {3, 4}},  {"fc2 dgrad shard1 backward 0", {6, 4}},
      {"fc2 wgrad shard1 backward 0", {4, 4}},     {"fc1 gradient shard1 backward 0", {6, 4}},
      {"fc1 dgrad partial backward 0", {6, 4}},    {"fc1 wgrad shard0 backward 0", {4, 4}}};
  for (const std::vector<Seen>& rank : seen) {
    ASSERT_EQ(rank.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(rank[i].what, expected[i].first);
      EXPECT_EQ(rank[i].shape, expected[i].second) << expected[i].first;
    }
  }
}

TEST(DebugPath, TheSessionHearsOfScalarsAndOfWhatIsNoOperand) {
  constexpr const char* kObserve = R"(
stream:
  enabled: True
  observe: .*
  transformer_engine:
    Recorder:
      enabled: True
)";
  std::vector<Seen> seen;
  const FeatureRegistry registry = with_recorder(seen);
  DebugSession session(registry, {}, session_options(kObserve));
  TrainerOptions options;
  options.model = testing::small_model();
  Trainer trainer(options, {}, &session);
  trainer.step([](std::int64_t, int) { return random_batch(1, 16, 64); });
  const std::vector<std::string> all = names(seen);
  ASSERT_GE(all.size(), 3U);
  EXPECT_THAT(std::vector<std::string>(all.begin(), all.begin() + 3),
              ElementsAre("decoder.layers.1 residual replicated forward 0",
                          "decoder.layers.2 residual replicated forward 0",
                          "output_layer logits replicated forward 0"));
  // Each parameter, and its update.
  EXPECT_EQ(all.size(), 3 + 2 * trainer.model().parameters().size());
  EXPECT_THAT(all, ::testing::Contains("decoder.final_layernorm.weight parameter replicated forward 0"));
  EXPECT_EQ(session.iteration(), 1);
  session.close();
}

}  // namespace
}  // namespace amaxscope::megatron
