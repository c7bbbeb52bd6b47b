// Evaluations between training steps: records of their own, and no trace in the training.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/loopback_communicator.hpp"
#include "core/error.hpp"
#include "megatron/model_support.hpp"
#include "megatron/recorder.hpp"
#include "megatron/trainer.hpp"
#include "runtime/sinks/file_sinks.hpp"

namespace amaxscope::megatron {
namespace {

using ::testing::ElementsAre;
using testing::random_batch;
using testing::Seen;
using testing::session_options;
using testing::with_recorder;

constexpr const char* kObserve = R"(
all:
  enabled: True
  layers: {layer_name_regex_pattern: .*}
  transformer_engine:
    LogTensorStats:
      enabled: True
      tensors: [activation, weight, gradient, output]
      stats: [min, max, mean, cur_amax]
)";

BatchSource batches(std::uint64_t stream) {
  return [stream](std::int64_t iteration, int microbatch) {
    return random_batch(stream * 1000 + static_cast<std::uint64_t>(iteration * 10 + microbatch), 64, 64);
  };
}

struct Outcome {
  std::vector<double> losses;
  std::vector<std::int64_t> evaluated;
  std::uint64_t digest = 0;
  std::vector<std::string> train_records;
  std::vector<std::string> eval_records;
};

Outcome train(RecipeKind recipe, std::int64_t eval_every) {
  Outcome outcome;
  std::vector<Seen> seen;
  const FeatureRegistry registry = with_recorder(seen);
  SessionOptions with = session_options(kObserve);
  with.extra_sinks.push_back(make_callback_sink([&](const StatRecord& record) {
    std::string line =
        fmt::format("{} {} {} {}", record.iteration, record.layer, record.tensor, to_string(record.phase));
    for (const StatValue& stat : record.stats) line += fmt::format(" {}={}", stat.name, stat.value);
    (record.phase == Phase::kEval ? outcome.eval_records : outcome.train_records).push_back(line);
  }));
  DebugSession session(registry, {}, with);
  TrainerOptions options;
  options.model = testing::small_model();
  options.model.hidden = 64;
  options.model.sequence = 32;
  options.recipe = recipe;
  options.eval_every = eval_every;
  options.learning_rate.peak = 3e-3;
  Trainer trainer(options, {}, &session);
  trainer.set_evaluation(batches(9), 2);
  trainer.run(5, batches(1), [&](const StepReport& report) {
    outcome.losses.push_back(report.loss);
    if (report.evaluation_loss) outcome.evaluated.push_back(report.iteration);
  });
  session.close();
  outcome.digest = trainer.digest();
  return outcome;
}

TEST(Evaluation, LeavesTrainingAndItsRecordsAsTheyAre) {
  for (const RecipeKind recipe : {RecipeKind::kNone, RecipeKind::kDelayed, RecipeKind::kCurrent,
                                  RecipeKind::kMxfp8, RecipeKind::kBlock, RecipeKind::kNvfp4}) {
    const Outcome plain = train(recipe, 0);
    const Outcome evaluated = train(recipe, 2);
    EXPECT_EQ(evaluated.losses, plain.losses);
    EXPECT_EQ(evaluated.digest, plain.digest);
    EXPECT_EQ(evaluated.train_records, plain.train_records) << to_string(recipe);
    EXPECT_FALSE(plain.train_records.empty());
    EXPECT_TRUE(plain.eval_records.empty());
    EXPECT_FALSE(evaluated.eval_records.empty());
    EXPECT_THAT(evaluated.evaluated, ElementsAre(0, 2, 4));
  }
}

TEST(Evaluation, NeedsBatches) {
  TrainerOptions options;
  options.model = testing::small_model();
  options.model.hidden = 64;
  options.model.sequence = 32;
  options.eval_every = 1;
  Trainer trainer(options, {}, nullptr);
  EXPECT_THROW(trainer.step(batches(1)), Error);
}

TEST(Evaluation, DrawsOtherBatchesThanTraining) {
  TrainerOptions options;
  options.model.sequence = 8;
  int equal = 0;
  std::string bytes;
  for (int i = 0; i < 10000; ++i) bytes += static_cast<char>('a' + (i * i) % 23);
  const TextData varied(bytes);
  for (std::int64_t i = 0; i < 10; ++i) {
    equal += static_cast<int>(text_batches(varied, options, 2, 0)(i, 0).inputs ==
                              evaluation_batches(varied, options, 2, 0)(i, 0).inputs);
  }
  EXPECT_LT(equal, 2);
}

}  // namespace
}  // namespace amaxscope::megatron
