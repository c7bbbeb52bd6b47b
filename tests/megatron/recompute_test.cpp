// Recompute: a transformer layer that runs its forward again in backward trains the same weights and changes
// no statistic and no history.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

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

struct Outcome {
  std::vector<double> losses;
  std::vector<std::uint64_t> digests;          ///< by rank
  std::vector<std::vector<std::string>> seen;  ///< by rank
  std::vector<std::string> statistics;         ///< of both ranks
  std::map<std::string, std::vector<std::uint32_t>> histories;
};

constexpr const char* kObserve = R"(
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
      stats: [min, max, mean, std, l1_norm, cur_amax]
)";

struct Setting {
  RecipeKind recipe = RecipeKind::kNone;
  bool sequence_parallel = false;
  DType dtype = DType::kF32;
};

/// Two tensor-parallel ranks, three iterations of two micro-batches.
Outcome train(const Setting& setting, bool recompute, bool observed) {
  Outcome outcome;
  outcome.digests.resize(2);
  outcome.seen.resize(2);
  std::vector<std::vector<std::string>> statistics(2);
  run_loopback_ranks(2, [&](Communicator& tp) {
    const auto rank = static_cast<std::size_t>(tp.rank());
    std::vector<Seen> seen;
    const FeatureRegistry registry = with_recorder(seen);
    std::unique_ptr<DebugSession> session;
    if (observed) {
      SessionOptions with = session_options(kObserve);
      with.extra_sinks.push_back(make_callback_sink(
          [&](const StatRecord& record) {
            std::string line = fmt::format("{} {} {} {}", record.iteration, record.layer, record.tensor,
                                           to_string(record.phase));
            for (const StatValue& stat : record.stats) line += fmt::format(" {}={}", stat.name, stat.value);
            statistics[rank].push_back(line);
          },
          [](std::int64_t, const Scalars&) {}));
      session = std::make_unique<DebugSession>(
          registry, SessionGroups{.world = &tp, .tp = &tp, .dp_cp = nullptr, .stage = &tp}, with);
    }
    TrainerOptions options;
    options.model = small_model();
    // Whole blocks of every format.
    options.model.hidden = 64;
    options.model.sequence = 32;
    options.model.recompute = recompute;
    options.model.mlp = MlpKind::kSwiglu;
    options.model.qk_norm = true;
    options.model.rotary_positions = true;
    options.recipe = setting.recipe;
    options.sequence_parallel = setting.sequence_parallel;
    options.dtype = setting.dtype;
    options.micro_batches = 2;
    options.learning_rate.peak = 3e-3;
    Trainer trainer(options, {.world = &tp, .tp = &tp, .dp = nullptr, .amax = &tp}, session.get());
    std::vector<double> losses;
    trainer.run(
        3,
        [](std::int64_t iteration, int microbatch) {
          return random_batch(static_cast<std::uint64_t>(iteration * 100 + microbatch), 64, 64);
        },
        [&](const StepReport& report) { losses.push_back(report.loss); });
    if (session != nullptr) session->close();
    outcome.digests[rank] = trainer.digest();
    outcome.seen[rank] = testing::names(seen);
    if (rank != 0) return;
    outcome.losses = losses;
    for (std::size_t i = 0; trainer.delayed() != nullptr && i < trainer.delayed()->size(); ++i) {
      outcome.histories[trainer.delayed()->slot(i).name] = trainer.delayed()->slot(i).history;
    }
  });
  for (const std::vector<std::string>& lines : statistics) {
    outcome.statistics.insert(outcome.statistics.end(), lines.begin(), lines.end());
  }
  return outcome;
}

class Recompute : public ::testing::TestWithParam<RecipeKind> {};

TEST_P(Recompute, TrainsTheSameWeights) {
  for (const bool sequence_parallel : {false, true}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      SCOPED_TRACE(fmt::format("{} sequence {}", to_string(dtype), sequence_parallel));
      const Setting setting{GetParam(), sequence_parallel, dtype};
      const Outcome plain = train(setting, false, false);
      const Outcome again = train(setting, true, false);
      EXPECT_EQ(again.losses, plain.losses);
      EXPECT_EQ(again.digests, plain.digests);
      EXPECT_EQ(again.histories, plain.histories);
    }
  }
}

TEST_P(Recompute, ChangesNoStatistic) {
  const Setting setting{GetParam(), true, DType::kF32};
  const Outcome plain = train(setting, false, true);
  const Outcome again = train(setting, true, true);
  ASSERT_FALSE(plain.statistics.empty());
  EXPECT_EQ(again.statistics, plain.statistics);
  EXPECT_EQ(again.digests, plain.digests);
  EXPECT_EQ(again.digests, train(setting, true, false).digests);
}

TEST_P(Recompute, IsShownAsRecompute) {
  const Outcome again = train({GetParam(), false, DType::kF32}, true, true);
  const auto count = [&](std::string_view what) { return std::ranges::count(again.seen[0], what); };
  // Iterations 0 and 2.
  EXPECT_EQ(count("decoder.layers.1.mlp.linear_fc1 activation replicated forward 1"), 2);
  EXPECT_EQ(count("decoder.layers.1.mlp.linear_fc1 activation replicated recompute 1"), 2);
  EXPECT_EQ(count("decoder.layers.1.mlp.linear_fc1 output shard1 recompute 0"), 2);
  EXPECT_EQ(count("decoder.layers.1.mlp.linear_fc1 weight shard0 forward 0"), 2);
  EXPECT_EQ(count("decoder.layers.1.mlp.linear_fc1 weight shard0 recompute 0"), 0) << "quantized once a step";
  EXPECT_EQ(count("decoder.layers.1.mlp.linear_fc1 gradient shard1 recompute 0"), 0);
}

INSTANTIATE_TEST_SUITE_P(Recipes, Recompute,
                         ::testing::Values(RecipeKind::kNone, RecipeKind::kDelayed, RecipeKind::kCurrent,
                                           RecipeKind::kMxfp8, RecipeKind::kBlock, RecipeKind::kNvfp4),
                         [](const auto& tested) { return std::string(to_string(tested.param)); });

}  // namespace
}  // namespace amaxscope::megatron
