// Trainings under debug configs: observing changes no byte, modifying changes what it says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "collectives/loopback_communicator.hpp"
#include "megatron/model_support.hpp"
#include "megatron/recorder.hpp"
#include "megatron/trainer.hpp"
#include "runtime/sinks/file_sinks.hpp"

namespace amaxscope::megatron {
namespace {

using testing::random_batch;
using testing::Seen;
using testing::session_options;
using testing::small_model;
using testing::with_recorder;

BatchSource random_batches() {
  return [](std::int64_t iteration, int microbatch) {
    return random_batch(static_cast<std::uint64_t>(iteration * 100 + microbatch), 16, 64);
  };
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
    CompareGemm:
      enabled: True
      gemms: [fprop, dgrad, wgrad]
    LogFp8TensorStats:
      enabled: True
      tensors: [activation, weight, gradient]
      stats: [mse, overflows%, scale_age, rounding_correlation, fp8_current_scaling_mse, fp8_delayed_scaling_mse,
              mxfp8_sqnr, mxfp8_sqnr_columnwise, fp8_block_scaling_worst_blocks, mxfp8_rounding_z]
    LogNvfp4TensorStats:
      enabled: True
      tensors: [activation, weight, gradient]
      stats: [underflows%, sqnr, sqnr_columnwise]
    LogTensorStats:
      enabled: True
      tensors: [activation, weight, gradient, output, wgrad, dgrad]
      stats: [min, max, mean, std, l1_norm, l2_norm, cur_amax, dynamic_range, kurtosis, peak_rms, histogram,
              outliers, outlier_channels]
      freq: 2
    Trends:
      enabled: True
      tensors: [activation, weight, gradient, output, wgrad, dgrad]
      alarm: [amax_jump, saturation, oscillation]
updates:
  enabled: True
  observe: .*
  transformer_engine:
    LogTensorStats:
      enabled: True
      stats: [rms, update_ratio, lost_updates%, adam_ratio]
)";

TEST(DebugTraining, AmaxesOfAllWeightsTakeOneCallAStep) {
  constexpr const char* kFakeWeights = R"(
all:
  enabled: True
  layers: {layer_types: [all]}
  transformer_engine:
    FakeQuant: {enabled: True, gemms: [fprop, dgrad], tensors: [weight], quant_format: FP8E4M3}
)";
  run_loopback_ranks(2, [&](Communicator& tp) {
    std::vector<Seen> seen;
    const FeatureRegistry registry = with_recorder(seen);
    DebugSession session(registry, SessionGroups{.world = &tp, .tp = &tp, .dp_cp = nullptr, .stage = &tp},
                         session_options(kFakeWeights));
    TrainerOptions options;
    options.model = small_model();
    options.micro_batches = 2;
    Trainer trainer(options, {.world = &tp, .tp = &tp, .dp = nullptr, .amax = &tp}, &session);
    trainer.run(1, random_batches(), [](const StepReport&) {});
    for (int step = 0; step < 2; ++step) {
      tp.barrier({.traffic = Traffic::kTrainer, .what = "test"});
      const std::uint64_t before = tp.counters().calls(Traffic::kDebug);
      trainer.run(1, random_batches(), [](const StepReport&) {});
      EXPECT_EQ(tp.counters().calls(Traffic::kDebug) - before, 1U) << "9 weights, 2 micro-batches";
    }
    session.close();
  });
}

TEST(DebugTraining, ObservingChangesNoByte) {
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

constexpr const char* kUpdates = R"(
updates:
  enabled: True
  observe: linear_fc1\.weight$
  transformer_engine:
    LogTensorStats:
      enabled: True
      stats: [update_ratio, lost_updates%, adam_ratio]
)";

/// lost_updates% of linear_fc1 after each of three steps in bf16, with updates of about 2e-5 on weights of
/// about 0.02, whose bf16 neighbours are 1e-4 apart.
std::vector<double> lost_updates(const std::string& fault) {
  std::vector<double> lost;
  std::vector<Seen> seen;
  SessionOptions session_settings = session_options(kUpdates);
  session_settings.extra_sinks.push_back(make_callback_sink(
      [&](const StatRecord& record) {
        if (record.layer != "decoder.layers.1.mlp.linear_fc1.weight") return;
        for (const StatValue& value : record.stats) {
          if (value.name == "lost_updates%") lost.push_back(value.value);
        }
      },
      nullptr));
  const FeatureRegistry registry = with_recorder(seen);
  DebugSession session(registry, {}, session_settings);
  TrainerOptions options;
  options.model = small_model();
  options.dtype = DType::kBF16;
  options.micro_batches = 1;
  options.learning_rate.peak = 2e-5;
  options.learning_rate.minimum = 2e-5;
  if (!fault.empty()) options.faults = {parse_fault(fault)};
  Trainer trainer(options, {}, &session);
  for (int step = 0; step < 3; ++step) trainer.step(random_batches());
  session.close();
  return lost;
}

// P19: BF16 weights without master copies lose small updates, and the statistic says so.
TEST(DebugTraining, LostUpdatesShowWeightsWithoutMasters) {
  const std::vector<double> sound = lost_updates("");
  ASSERT_EQ(sound.size(), 3U);
  for (const double share : sound) EXPECT_LT(share, 1.0);
  const std::vector<double> planted = lost_updates("no_master_weights@iteration=1");
  ASSERT_EQ(planted.size(), 3U);
  EXPECT_LT(planted[0], 1.0) << "not before it is planted";
  EXPECT_GT(planted[1], 50.0);
  EXPECT_GT(planted[2], 50.0);
}

/// Of what a step changed, the weights' digest aside: read before and after, in double.
TEST(DebugTraining, UpdatesAreReportedAsTheWeightsChange) {
  run_loopback_ranks(2, [](Communicator& tp) {
    std::vector<Seen> seen;
    std::vector<StatRecord> records;
    SessionOptions session_settings = session_options(kUpdates);
    session_settings.extra_sinks.push_back(
        make_callback_sink([&](const StatRecord& record) { records.push_back(record); }, nullptr));
    const FeatureRegistry registry = with_recorder(seen);
    DebugSession session(registry, {.world = &tp, .tp = &tp, .dp_cp = nullptr, .stage = &tp},
                         session_settings);
    TrainerOptions options;
    options.model = small_model();
    options.micro_batches = 1;
    options.learning_rate.peak = 3e-3;
    Trainer trainer(options, {.world = &tp, .tp = &tp, .dp = nullptr, .amax = &tp}, &session);
    const Parameter* weight = nullptr;
    for (const Parameter* const parameter : trainer.model().parameters()) {
      if (parameter->name == "decoder.layers.1.mlp.linear_fc1.weight") weight = parameter;
    }
    ASSERT_NE(weight, nullptr);
    for (int step = 0; step < 2; ++step) {
      const Tensor before = weight->master.clone();
      records.clear();
      trainer.step(random_batches());
      Tensor sums(DType::kF64, Shape{2});
      for (std::size_t i = 0; i < weight->master.values<float>().size(); ++i) {
        const auto w = static_cast<double>(before.values<float>()[i]);
        const double change = static_cast<double>(weight->master.values<float>()[i]) - w;
        sums.values<double>()[0] += change * change;
        sums.values<double>()[1] += w * w;
      }
      tp.all_reduce(sums, ReduceOp::kSum, {Traffic::kTrainer, "test"});
      const auto found =
          std::ranges::find_if(records, [&](const StatRecord& r) { return r.layer == weight->name; });
      ASSERT_NE(found, records.end());
      EXPECT_EQ(found->tensor, "update");
      std::map<std::string, double> stats;
      for (const StatValue& value : found->stats) stats[value.name] = value.value;
      EXPECT_NEAR(stats.at("update_ratio"), std::sqrt(sums.values<double>()[0] / sums.values<double>()[1]),
                  1e-5 * stats.at("update_ratio"))
          << "but for the rounding of the new weights";
      EXPECT_LT(stats.at("lost_updates%"), 1.0) << "masters are f32";
      if (step == 0) {
        EXPECT_NEAR(stats.at("adam_ratio"), 1.0, 1e-2) << "g / |g|, but for epsilon";
      }
      EXPECT_EQ(records.size(), static_cast<std::size_t>(small_model().layers)) << "one a selected parameter";
    }
    session.close();
  });
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
TEST(DebugTraining, MixedPlansTrainAsWellAsTheRecipe) {
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

TEST(DebugTraining, ModifiedResultsTakeTheirPlaceUnderBothArithmetics) {
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

std::string override_everything(RecipeKind recipe) {
  return fmt::format(R"(
all:
  enabled: True
  layers:
    layer_name_regex_pattern: linear_
  transformer_engine:
    RecipeOverride:
      enabled: True
      recipe: {}
      amax_scope: te
      gemms: [fprop, dgrad, wgrad]
      tensors: [activation, weight, gradient]
)",
                     to_string(recipe));
}

// Everything overridden is a run under the other recipe, to the last bit: with and without one running,
// delayed scaling with a history of its own.
TEST(DebugTraining, OverridingEverythingEqualsTheRecipe) {
  for (const bool sequence_parallel : {false, true}) {
    for (const RecipeKind recipe : {RecipeKind::kDelayed, RecipeKind::kCurrent, RecipeKind::kBlock}) {
      // Where slices of the sequence cut blocks the recipe gathers first, which an override cannot.
      if (sequence_parallel && recipe == RecipeKind::kBlock) continue;
      const Outcome expected = train({recipe, DType::kF32, sequence_parallel, GemmArithmetic::kBlas}, "");
      for (const RecipeKind running : {RecipeKind::kNone, RecipeKind::kDelayed, RecipeKind::kCurrent}) {
        const Outcome overridden = train({running, DType::kF32, sequence_parallel, GemmArithmetic::kBlas},
                                         override_everything(recipe));
        EXPECT_EQ(overridden.digests, expected.digests)
            << to_string(recipe) << " instead of " << to_string(running) << " sequence " << sequence_parallel;
      }
    }
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

TEST(DebugTraining, DisablingQuantizationEverywhereEqualsNoRecipe) {
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

}  // namespace
}  // namespace amaxscope::megatron
