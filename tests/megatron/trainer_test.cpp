// The training loop: what a step does, data parallelism, evaluation, traffic.
#include "megatron/trainer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "collectives/loopback_communicator.hpp"
#include "collectives/process_groups.hpp"
#include "core/error.hpp"
#include "megatron/gradients.hpp"
#include "megatron/layers/operand_quantizers.hpp"
#include "megatron/model_support.hpp"

namespace amaxscope::megatron {
namespace {

using ::testing::HasSubstr;
using testing::joined;
using testing::random_batch;
using testing::relative_distance;
using testing::small_model;
using testing::to_doubles;

TrainerOptions options(RecipeKind recipe = RecipeKind::kNone) {
  TrainerOptions options;
  options.model = small_model();
  options.recipe = recipe;
  options.learning_rate = {.peak = 3e-3};
  options.seed = 3;
  return options;
}

BatchSource random_batches(int dp_rank = 0) {
  return [dp_rank](std::int64_t iteration, int microbatch) {
    return random_batch(static_cast<std::uint64_t>(iteration * 100 + microbatch * 10 + dp_rank), 16, 64);
  };
}

/// A text of one phrase: easy to learn.
BatchSource easy_batches(const TrainerOptions& options) {
  static const TextData text([] {
    std::string repeated;
    for (int i = 0; i < 64; ++i) repeated += "the quick brown fox jumps over it; ";
    return repeated;
  }());
  return text_batches(text, options, 4, 0);
}

void ignore(const StepReport&) {}

TEST(Trainer, LossDecreasesUnderEveryRecipe) {
  for (const RecipeKind recipe : {RecipeKind::kNone, RecipeKind::kDelayed, RecipeKind::kCurrent}) {
    TrainerOptions with = options(recipe);
    with.model.vocabulary = 256;
    Trainer trainer(with, {}, nullptr);
    std::vector<double> losses;
    trainer.run(60, easy_batches(with), [&](const StepReport& report) { losses.push_back(report.loss); });
    ASSERT_EQ(losses.size(), 60U);
    EXPECT_NEAR(losses.front(), std::log(256.0), 0.1) << to_string(recipe);
    EXPECT_LT(losses.back(), 2.5) << to_string(recipe);
    EXPECT_EQ(trainer.iteration(), 60);
  }
}

TEST(Trainer, IsDeterministicForASeed) {
  const auto digest = [](std::uint64_t seed) {
    TrainerOptions seeded = options(RecipeKind::kDelayed);
    seeded.seed = seed;
    Trainer trainer(seeded, {}, nullptr);
    trainer.run(3, random_batches(), ignore);
    return trainer.digest();
  };
  EXPECT_EQ(digest(3), digest(3));
  EXPECT_NE(digest(3), digest(4));
}

TEST(Trainer, EvaluationChangesNothing) {
  for (const RecipeKind recipe : {RecipeKind::kNone, RecipeKind::kDelayed, RecipeKind::kCurrent}) {
    Trainer plain(options(recipe), {}, nullptr);
    Trainer evaluating(options(recipe), {}, nullptr);
    const BatchSource eval_batches = [](std::int64_t, int microbatch) {
      return random_batch(static_cast<std::uint64_t>(900 + microbatch), 16, 64);
    };
    double first = 0;
    for (int i = 0; i < 3; ++i) {
      plain.step(random_batches());
      const double loss = evaluating.evaluate(eval_batches, 2);
      if (i == 0) first = loss;
      evaluating.step(random_batches());
    }
    EXPECT_EQ(plain.digest(), evaluating.digest()) << to_string(recipe);
    // It sees the weights of now: a stale copy would give the first answer again.
    EXPECT_NE(evaluating.evaluate(eval_batches, 2), first) << to_string(recipe);
  }
  Trainer trainer(options(), {}, nullptr);
  EXPECT_THROW(trainer.evaluate(random_batches(), 0), Error);
}

TEST(Trainer, TwoDataParallelRanksEqualOneWithBothBatches) {
  TrainerOptions f64 = options();
  f64.dtype = DType::kF64;
  f64.clip_norm = 0.5;
  Trainer one(f64, {}, nullptr);
  std::vector<StepReport> expected;
  one.run(
      3,
      [](std::int64_t iteration, int microbatch) {
        const std::vector<Batch> parts = {random_batches(0)(iteration, microbatch),
                                          random_batches(1)(iteration, microbatch)};
        return joined(parts, 8);
      },
      [&](const StepReport& report) { expected.push_back(report); });
  run_loopback_ranks(2, [&](Communicator& dp) {
    Trainer trainer(f64, {.world = &dp, .tp = nullptr, .dp = &dp, .amax = &dp}, nullptr);
    for (const StepReport& report : expected) {
      const StepReport own = trainer.step(random_batches(dp.rank()));
      EXPECT_NEAR(own.loss, report.loss, 1e-12);
      EXPECT_NEAR(own.gradient_norm, report.gradient_norm, 1e-11);
    }
    for (std::size_t i = 0; i < one.model().parameters().size(); ++i) {
      EXPECT_LT(relative_distance(to_doubles(trainer.model().parameters()[i]->master.view()),
                                  to_doubles(one.model().parameters()[i]->master.view())),
                1e-9);
    }
  });
}

TEST(Trainer, ReplicasStayBitIdenticalOverTensorAndDataParallelRanks) {
  for (const bool sequence_parallel : {false, true}) {
    std::vector<std::uint64_t> digests(4);
    run_loopback_ranks(4, [&](Communicator& world) {
      const ProcessGroups groups(world, {.tp = 2});
      TrainerOptions with = options(RecipeKind::kDelayed);
      with.sequence_parallel = sequence_parallel;
      with.micro_batches = 2;
      Trainer trainer(with,
                      {.world = &world, .tp = &groups.tp(), .dp = &groups.dp(), .amax = &groups.tp_dp_cp()},
                      nullptr);
      trainer.run(3, random_batches(groups.dp().rank()), ignore);
      std::vector<Parameter*> replicated;
      for (Parameter* const parameter : trainer.model().parameters()) {
        if (parameter->layout == Layout::kReplicated) replicated.push_back(parameter);
      }
      digests[static_cast<std::size_t>(world.rank())] = weights_digest(replicated);
      // Split parameters are equal over dp.
      Tensor bounds = Tensor::of<std::uint64_t>({trainer.digest(), ~trainer.digest()}, {2});
      groups.dp().all_reduce(bounds, ReduceOp::kMax, {Traffic::kTrainer, "test"});
      EXPECT_EQ(bounds.values<std::uint64_t>()[0], ~bounds.values<std::uint64_t>()[1]);
    });
    for (const std::uint64_t digest : digests) EXPECT_EQ(digest, digests.front());
  }
}

struct Counts {
  std::uint64_t recipe = 0;
  std::uint64_t debug = 0;
};

Counts collectives_of_a_step(RecipeKind recipe, bool sequence_parallel) {
  Counts counts;
  run_loopback_ranks(2, [&](Communicator& tp) {
    TrainerOptions with = options(recipe);
    with.sequence_parallel = sequence_parallel;
    with.micro_batches = 3;
    Trainer trainer(with, {.world = &tp, .tp = &tp, .dp = nullptr, .amax = &tp}, nullptr);
    const Counts before = {tp.counters().calls(Traffic::kRecipe), tp.counters().calls(Traffic::kDebug)};
    trainer.step(random_batches());
    if (tp.rank() == 0) {
      counts = {tp.counters().calls(Traffic::kRecipe) - before.recipe,
                tp.counters().calls(Traffic::kDebug) - before.debug};
    }
  });
  return counts;
}

TEST(Trainer, RecipeTrafficIsWhatTheRecipeNeeds) {
  EXPECT_EQ(collectives_of_a_step(RecipeKind::kNone, true).recipe, 0U);
  EXPECT_EQ(collectives_of_a_step(RecipeKind::kDelayed, false).recipe, 1U);
  EXPECT_EQ(collectives_of_a_step(RecipeKind::kDelayed, true).recipe, 1U);
  EXPECT_EQ(collectives_of_a_step(RecipeKind::kCurrent, false).recipe, 0U);
  // qkv and fc1 activation, proj and fc2 gradient, in 2 layers and 3 micro-batches.
  EXPECT_EQ(collectives_of_a_step(RecipeKind::kCurrent, true).recipe, 4U * 2 * 3);
  EXPECT_EQ(collectives_of_a_step(RecipeKind::kCurrent, true).debug, 0U);
}

TEST(Trainer, FaultsStrikeTheirIteration) {
  TrainerOptions with = options(RecipeKind::kCurrent);
  with.faults = {parse_fault("nan@layer=decoder.layers.2.mlp.linear_fc1,iteration=1,index=5")};
  Trainer sound(options(RecipeKind::kCurrent), {}, nullptr);
  Trainer struck(with, {}, nullptr);
  EXPECT_EQ(struck.step(random_batches()).loss, sound.step(random_batches()).loss);
  EXPECT_TRUE(std::isnan(struck.step(random_batches()).loss));
  with.faults = {parse_fault("nan@layer=decoder.layers.3.mlp.linear_fc1")};
  try {
    Trainer trainer(with, {}, nullptr);
    FAIL() << "a fault in a layer that does not exist";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("decoder.layers.2.mlp.linear_fc2, output_layer"));
  }
}

TEST(Trainer, FaultsOnRanksThatDoNotExistAreRefused) {
  TrainerOptions with = options(RecipeKind::kCurrent);
  with.faults = {parse_fault("nan@layer=output_layer,rank=1")};
  EXPECT_THROW(Trainer(with, {}, nullptr), Error);
}

TEST(Trainer, SkippedDelayedReductionLeavesOneSlotToEachRank) {
  const std::string layer = "decoder.layers.1.mlp.linear_fc1";
  std::vector<std::map<std::string, float>> scales(2);
  run_loopback_ranks(2, [&](Communicator& tp) {
    TrainerOptions with = options(RecipeKind::kDelayed);
    with.delayed.algorithm = AmaxAlgorithm::kMostRecent;
    with.faults = {parse_fault("skip_amax_reduction@layer=" + layer + ",tensor=weight,iteration=1")};
    Trainer trainer(with, {.world = &tp, .tp = &tp, .dp = nullptr, .amax = &tp}, nullptr);
    const auto scales_now = [&] {
      std::map<std::string, float> result;
      for (std::size_t i = 0; i < trainer.delayed()->size(); ++i) {
        result[trainer.delayed()->slot(i).name] = trainer.delayed()->slot(i).scale;
      }
      return result;
    };
    trainer.step(random_batches());
    const std::map<std::string, float> before = scales_now();
    Tensor bounds = Tensor::of<float>({before.at(layer + ".weight"), -before.at(layer + ".weight")}, {2});
    tp.all_reduce(bounds, ReduceOp::kMax, {Traffic::kTrainer, "test"});
    EXPECT_EQ(bounds.values<float>()[0], -bounds.values<float>()[1]) << "sound in iteration 0";
    trainer.step(random_batches());
    scales[static_cast<std::size_t>(tp.rank())] = scales_now();
  });
  for (const auto& [name, scale] : scales[0]) {
    if (name != layer + ".weight") {
      EXPECT_EQ(scales[1].at(name), scale) << name;
    }
  }
  EXPECT_NE(scales[0].at(layer + ".weight"), scales[1].at(layer + ".weight"));
}

TEST(Trainer, RefusesNoMicroBatches) {
  TrainerOptions none = options();
  none.micro_batches = 0;
  EXPECT_THROW(Trainer(none, {}, nullptr), Error);
}

TEST(SlotName, IsTheInverseOfTheFaultLookup) {
  const FaultTable faults({parse_fault("skip_amax_reduction@layer=a.b,tensor=gradient")}, 0);
  EXPECT_EQ(slot_name("a.b", TensorKind::kGradient), "a.b.gradient");
  EXPECT_EQ(skipped_reduction(faults, "a.b.gradient"), &faults.faults()[0]);
  EXPECT_EQ(skipped_reduction(faults, "a.b.weight"), nullptr);
  EXPECT_EQ(skipped_reduction(faults, "a.c.gradient"), nullptr);
  EXPECT_EQ(skipped_reduction(faults, "gradient"), nullptr);
}

}  // namespace
}  // namespace amaxscope::megatron
