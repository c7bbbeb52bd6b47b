// Layers under a debug session: the order of hooks, what each sees, and that observing changes no byte.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/loopback_communicator.hpp"
#include "features/builtin.hpp"
#include "megatron/model_support.hpp"
#include "megatron/trainer.hpp"

namespace amaxscope::megatron {
namespace {

using ::testing::ElementsAre;
using testing::random_batch;
using testing::random_tensor;
using testing::small_model;
using testing::to_doubles;

BatchSource random_batches() {
  return [](std::int64_t iteration, int microbatch) {
    return random_batch(static_cast<std::uint64_t>(iteration * 100 + microbatch), 16, 64);
  };
}

/// What one inspecting hook saw.
struct Seen {
  std::string what;  ///< "layer tensor layout phase microbatch"
  Shape shape;
  std::vector<double> values;
  std::vector<double> rowwise;
};

/// A feature that notes every tensor it is shown.
class Recorder final : public Feature {
 public:
  Recorder(FeatureConfig config, std::vector<Seen>& seen) : Feature(std::move(config)), seen_(seen) {}
  [[nodiscard]] bool alters_numerics() const override { return false; }
  [[nodiscard]] Decision inspect_tensor_enabled(const InspectedTensor&,
                                                std::int64_t iteration) const override {
    return {iteration != 1, iteration + 1};
  }
  void inspect_tensor(const InspectContext& context) override {
    seen_.push_back({fmt::format("{} {} {} {} {}", context.tensor.layer, context.tensor.name,
                                 to_string(context.tensor.layout), to_string(context.moment.phase),
                                 context.moment.microbatch),
                     context.x.shape(), to_doubles(context.x),
                     context.rowwise == nullptr
                         ? std::vector<double>{}
                         : to_doubles(context.rowwise->dequantize(DType::kF32, Direction::kRowwise).view())});
  }

 private:
  std::vector<Seen>& seen_;
};

FeatureRegistry with_recorder(std::vector<Seen>& seen) {
  FeatureRegistry registry = builtin_features();
  registry.add({.schema = {.name = "Recorder", .doc = "Notes what it sees."},
                .base_namespace = false,
                .make = [&seen](FeatureConfig config) {
                  return std::make_unique<Recorder>(std::move(config), seen);
                }});
  return registry;
}

SessionOptions session_options(const std::string& yaml) {
  SessionOptions options;
  options.config_text = yaml;
  options.deadline = std::chrono::seconds(20);
  return options;
}

constexpr const char* kRecordEverything = R"(
all:
  enabled: True
  layers:
    layer_name_regex_pattern: .*
  transformer_engine:
    Recorder:
      enabled: True
)";

std::vector<std::string> names(const std::vector<Seen>& seen) {
  std::vector<std::string> result;
  for (const Seen& one : seen) result.push_back(one.what);
  return result;
}

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

struct Setting {
  RecipeKind recipe = RecipeKind::kNone;
  DType dtype = DType::kF32;
  bool sequence_parallel = false;
  GemmArithmetic arithmetic = GemmArithmetic::kBlas;
};

struct Outcome {
  std::vector<std::uint64_t> digests;
  std::vector<double> losses;  ///< rank 0's
};

/// Two ranks, three iterations of two micro-batches, under a YAML (empty: without a session).
Outcome train(const Setting& setting, const std::string& yaml) {
  Outcome outcome;
  outcome.digests.resize(2);
  run_loopback_ranks(2, [&](Communicator& tp) {
    std::vector<Seen> seen;
    const FeatureRegistry registry = with_recorder(seen);
    std::unique_ptr<DebugSession> session;
    if (!yaml.empty()) {
      session = std::make_unique<DebugSession>(
          registry, SessionGroups{.world = &tp, .tp = &tp, .dp_cp = nullptr, .stage = &tp},
          session_options(yaml));
    }
    TrainerOptions options;
    options.model = small_model();
    options.recipe = setting.recipe;
    options.dtype = setting.dtype;
    options.sequence_parallel = setting.sequence_parallel;
    options.arithmetic = setting.arithmetic;
    options.micro_batches = 2;
    options.learning_rate.peak = 3e-3;
    Trainer trainer(options, {.world = &tp, .tp = &tp, .dp = nullptr, .amax = &tp}, session.get());
    std::vector<double> losses;
    trainer.run(3, random_batches(), [&](const StepReport& report) { losses.push_back(report.loss); });
    if (session != nullptr) {
      EXPECT_FALSE(session->detached());
      session->close();
    }
    outcome.digests[static_cast<std::size_t>(tp.rank())] = trainer.digest();
    if (tp.rank() == 0) outcome.losses = losses;
  });
  return outcome;
}

std::vector<Setting> all_settings() {
  std::vector<Setting> settings;
  for (const RecipeKind recipe : {RecipeKind::kNone, RecipeKind::kDelayed, RecipeKind::kCurrent}) {
    for (const bool sequence_parallel : {false, true}) {
      settings.push_back({recipe, DType::kF32, sequence_parallel, GemmArithmetic::kBlas});
      settings.push_back({recipe, DType::kBF16, sequence_parallel, GemmArithmetic::kBlas});
    }
    settings.push_back({recipe, DType::kF32, true, GemmArithmetic::kExact});
  }
  return settings;
}

constexpr const char* kObserveEverything = R"(
all:
  enabled: True
  layers:
    layer_name_regex_pattern: .*
  transformer_engine:
    Recorder:
      enabled: True
    LogTensorStats:
      enabled: True
      tensors: [activation, weight, gradient, output, wgrad, dgrad]
      stats: [min, max, mean, std, l1_norm, l2_norm, cur_amax, dynamic_range]
      freq: 2
)";

TEST(DebugPath, ObservingChangesNoByte) {
  for (const Setting& setting : all_settings()) {
    SCOPED_TRACE(fmt::format("{} {} sequence {} exact {}", to_string(setting.recipe),
                             to_string(setting.dtype), setting.sequence_parallel,
                             setting.arithmetic == GemmArithmetic::kExact));
    const Outcome plain = train(setting, "");
    const Outcome observed = train(setting, kObserveEverything);
    EXPECT_EQ(observed.digests, plain.digests);
    EXPECT_EQ(observed.losses, plain.losses);
  }
}

constexpr const char* kMixedPlans = R"(
high:
  enabled: True
  layers:
    layer_name_regex_pattern: linear_(qkv|proj)
  transformer_engine:
    DisableQuantizationGEMM:
      enabled: True
      gemms: [wgrad]
scaled:
  enabled: True
  layers:
    layer_name_regex_pattern: linear_fc
  transformer_engine:
    PerTensorScaling:
      enabled: True
      gemms_struct:
        - gemm: fprop
          tensors: [activation, weight]
        - gemm: dgrad
          tensors: [gradient]
)";

// Rowwise and columnwise members of different kinds, gathered each under sequence parallelism.
TEST(DebugPath, MixedPlansTrainAsWellAsTheRecipe) {
  for (const bool sequence_parallel : {false, true}) {
    const Setting setting{RecipeKind::kDelayed, DType::kF32, sequence_parallel, GemmArithmetic::kBlas};
    const Outcome plain = train(setting, "");
    const Outcome mixed = train(setting, kMixedPlans);
    EXPECT_NE(mixed.digests, plain.digests);
    for (std::size_t i = 0; i < plain.losses.size(); ++i) EXPECT_NEAR(mixed.losses[i], plain.losses[i], 0.05);
  }
}

constexpr const char* kModifiedResults = R"(
results:
  enabled: True
  layers:
    layer_name_regex_pattern: linear_
  transformer_engine:
    FakeQuant:
      enabled: True
      quant_format: FP8E4M3
      amax_scope: local
      gemms_struct:
        - gemm: fprop
          tensors: [output]
        - gemm: dgrad
          tensors: [dgrad]
        - gemm: wgrad
          tensors: [wgrad]
)";

TEST(DebugPath, ModifiedResultsTakeTheirPlaceUnderBothArithmetics) {
  const Setting blas{RecipeKind::kNone, DType::kF32, true, GemmArithmetic::kBlas};
  const Setting exact{RecipeKind::kNone, DType::kF32, true, GemmArithmetic::kExact};
  const Outcome plain = train(blas, "");
  const Outcome modified = train(blas, kModifiedResults);
  const Outcome modified_exact = train(exact, kModifiedResults);
  EXPECT_NE(modified.losses.front(), plain.losses.front());
  for (std::size_t i = 0; i < plain.losses.size(); ++i) {
    EXPECT_NEAR(modified.losses[i], plain.losses[i], 0.02);
    // Apart from sums whose last bits decide how a code rounds, both round the same values.
    EXPECT_NEAR(modified_exact.losses[i], modified.losses[i],
                std::abs(modified.losses[i] - plain.losses[i]) / 4);
  }
}

constexpr const char* kDisableEverything = R"(
all:
  enabled: True
  layers:
    layer_name_regex_pattern: .*
  transformer_engine:
    DisableQuantizationLayer:
      enabled: True
)";

TEST(DebugPath, DisablingQuantizationEverywhereEqualsNoRecipe) {
  for (const bool sequence_parallel : {false, true}) {
    for (const RecipeKind recipe : {RecipeKind::kDelayed, RecipeKind::kCurrent}) {
      const Outcome none =
          train({RecipeKind::kNone, DType::kF32, sequence_parallel, GemmArithmetic::kBlas}, "");
      const Outcome disabled =
          train({recipe, DType::kF32, sequence_parallel, GemmArithmetic::kBlas}, kDisableEverything);
      EXPECT_EQ(disabled.digests, none.digests) << to_string(recipe);
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
  options.model = small_model();
  Trainer trainer(options, {}, &session);
  trainer.step(random_batches());
  const std::vector<std::string> all = names(seen);
  ASSERT_GE(all.size(), 3U);
  EXPECT_THAT(std::vector<std::string>(all.begin(), all.begin() + 3),
              ElementsAre("decoder.layers.1 residual replicated forward 0",
                          "decoder.layers.2 residual replicated forward 0",
                          "output_layer logits replicated forward 0"));
  EXPECT_EQ(all.size(), 3 + trainer.model().parameters().size());
  EXPECT_THAT(all, ::testing::Contains("decoder.final_layernorm.weight parameter replicated forward 0"));
  EXPECT_EQ(session.iteration(), 1);
  session.close();
}

}  // namespace
}  // namespace amaxscope::megatron
