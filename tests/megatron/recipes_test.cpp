// Every recipe in the trainer: it learns, ranks agree, sequence parallelism changes where codes are made and
// not what they are, and being observed changes no byte.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/loopback_communicator.hpp"
#include "core/error.hpp"
#include "megatron/gradients.hpp"
#include "megatron/layers/operand_quantizers.hpp"
#include "megatron/model_support.hpp"
#include "megatron/recorder.hpp"
#include "megatron/trainer.hpp"

namespace amaxscope::megatron {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using testing::ModelRun;
using testing::random_batch;
using testing::Seen;

constexpr std::array kBlockRecipes = {RecipeKind::kMxfp8, RecipeKind::kBlock, RecipeKind::kNvfp4};

GptOptions model(std::int64_t sequence) {
  return {.layers = 1,
          .hidden = 64,
          .heads = 4,
          .sequence = sequence,
          .ffn_hidden = 0,
          .vocabulary = 64,
          .norm = {}};
}

/// Sequences whose halves are whole blocks of the recipe, or cut them; 32 or more tokens each way.
std::int64_t sequence_of(RecipeKind recipe, bool whole_blocks) {
  if (!whole_blocks) return 8;
  if (recipe == RecipeKind::kBlock) return 256;
  return recipe == RecipeKind::kMxfp8 ? 64 : 32;
}

ModelRun run(RecipeKind recipe, std::int64_t sequence, bool sequence_parallel,
             GemmArithmetic arithmetic = GemmArithmetic::kBlas) {
  testing::RunOptions options;
  options.model = model(sequence);
  options.context.recipe = recipe;
  options.context.sequence_parallel = sequence_parallel;
  options.context.arithmetic = arithmetic;
  options.context.seed = 5;
  const std::array batches = {random_batch(1, std::max<std::int64_t>(sequence, 32), 64)};
  return testing::run_model_on(2, options, batches);
}

TEST(Recipes, SequenceParallelForwardIsTheSame) {
  for (const RecipeKind recipe : kBlockRecipes) {
    for (const bool whole_blocks : {true, false}) {
      SCOPED_TRACE(fmt::format("{} whole blocks {}", to_string(recipe), whole_blocks));
      const std::int64_t sequence = sequence_of(recipe, whole_blocks);
      const ModelRun plain = run(recipe, sequence, false);
      const ModelRun split = run(recipe, sequence, true);
      EXPECT_NEAR(split.loss, plain.loss, 2e-6) << "the same codes, sums in another order";
      for (const auto& [name, gradient] : plain.gradients) {
        // A rounding that differs moves a code; NVFP4 rounds gradients at random.
        const double tolerance = recipe == RecipeKind::kNvfp4 ? 0.7 : 0.1;
        EXPECT_LT(testing::relative_distance(split.gradients.at(name), gradient), tolerance) << name;
      }
    }
  }
}

TEST(Recipes, ExactProductsAgreeWithBlas) {
  for (const RecipeKind recipe : kBlockRecipes) {
    const ModelRun blas = run(recipe, sequence_of(recipe, true), true);
    const ModelRun exact = run(recipe, sequence_of(recipe, true), true, GemmArithmetic::kExact);
    EXPECT_NEAR(exact.loss, blas.loss, 2e-5) << to_string(recipe);
  }
}

TEST(Recipes, RecipesDiffer) {
  const double none = run(RecipeKind::kNone, 64, false).loss;
  std::vector<double> losses;
  for (const RecipeKind recipe : kBlockRecipes) losses.push_back(run(recipe, 64, false).loss);
  for (const double loss : losses) {
    EXPECT_NEAR(loss, none, 0.05);
    EXPECT_NE(loss, none);
  }
  EXPECT_NE(losses[0], losses[1]);
  EXPECT_NE(losses[1], losses[2]);
}

struct Setting {
  RecipeKind recipe;
  int ranks;
  bool sequence_parallel;
  bool whole_blocks;
  DType dtype = DType::kF32;
  bool fp8_weights = false;
};

std::string to_text(const Setting& s) {
  return fmt::format("{} on {} ranks, sequence parallel {}, whole blocks {}, {}", to_string(s.recipe),
                     s.ranks, s.sequence_parallel, s.whole_blocks, to_string(s.dtype));
}

struct Outcome {
  std::vector<std::uint64_t> digests;     ///< of all weights of a rank
  std::vector<std::uint64_t> replicated;  ///< of those that every rank holds
  std::vector<double> losses;
  std::vector<std::string> seen;  ///< by rank 0
};

Outcome train(const Setting& setting, int steps, const std::string& yaml = {}) {
  Outcome outcome;
  outcome.digests.resize(static_cast<std::size_t>(setting.ranks));
  outcome.replicated = outcome.digests;
  run_loopback_ranks(setting.ranks, [&](Communicator& tp) {
    std::vector<Seen> seen;
    const FeatureRegistry registry = testing::with_recorder(seen);
    std::unique_ptr<DebugSession> session;
    if (!yaml.empty()) {
      session = std::make_unique<DebugSession>(
          registry, SessionGroups{.world = &tp, .tp = &tp, .dp_cp = nullptr, .stage = &tp},
          testing::session_options(yaml));
    }
    TrainerOptions options;
    options.model = model(sequence_of(setting.recipe, setting.whole_blocks));
    options.recipe = setting.recipe;
    options.dtype = setting.dtype;
    options.fp8_weights = setting.fp8_weights;
    options.sequence_parallel = setting.sequence_parallel;
    options.learning_rate.peak = 1e-2;
    options.clip_norm = 1.0;
    Trainer trainer(options, {.world = &tp, .tp = &tp, .dp = nullptr, .amax = &tp}, session.get());
    const std::int64_t tokens = std::max<std::int64_t>(options.model.sequence, 64);
    // Next = current + 1 (mod 8): learned in a few steps.
    const BatchSource counting = [&](std::int64_t iteration, int) {
      Batch batch = random_batch(static_cast<std::uint64_t>(iteration), tokens, 8);
      for (std::size_t i = 0; i < batch.inputs.size(); ++i) batch.targets[i] = (batch.inputs[i] + 1) % 8;
      return batch;
    };
    std::vector<double> losses;
    trainer.run(steps, counting, [&](const StepReport& report) { losses.push_back(report.loss); });
    if (session != nullptr) {
      EXPECT_FALSE(session->detached());
      session->close();
    }
    std::vector<Parameter*> replicated;
    for (Parameter* const parameter : trainer.model().parameters()) {
      if (parameter->layout == Layout::kReplicated) replicated.push_back(parameter);
    }
    EXPECT_FALSE(replicated.empty());
    const auto rank = static_cast<std::size_t>(tp.rank());
    outcome.digests[rank] = trainer.digest();
    outcome.replicated[rank] = weights_digest(replicated);
    if (rank == 0) {
      outcome.losses = losses;
      outcome.seen = testing::names(seen);
    }
  });
  return outcome;
}

std::vector<Setting> settings_of(RecipeKind recipe) {
  return {
      {recipe, 1, false, true}, {recipe, 2, false, true}, {recipe, 2, true, true}, {recipe, 2, true, false}};
}

TEST(Recipes, BlockRecipesLearnAndReplicasStayAlike) {
  for (const RecipeKind recipe : kBlockRecipes) {
    for (const Setting& setting : settings_of(recipe)) {
      SCOPED_TRACE(to_text(setting));
      const Outcome outcome = train(setting, 20);
      EXPECT_NEAR(outcome.losses.front(), std::log(64.0), 0.2);
      EXPECT_LT(outcome.losses.back(), 1.0);
      EXPECT_EQ(outcome.replicated.front(), outcome.replicated.back());
    }
  }
}

TEST(Recipes, WeightsThatExistAsCodesOnly) {
  for (const RecipeKind recipe : kBlockRecipes) {
    Setting setting{recipe, 2, true, true};
    const Outcome both = train(setting, 3);
    setting.fp8_weights = true;
    // Under f32 the codes are made of the same values.
    EXPECT_EQ(train(setting, 3).digests, both.digests) << to_text(setting);
  }
}

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
      freq: 2
)";

TEST(Recipes, ObservingChangesNoByte) {
  for (const RecipeKind recipe : kBlockRecipes) {
    for (Setting setting : settings_of(recipe)) {
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        setting.dtype = dtype;
        SCOPED_TRACE(to_text(setting));
        const Outcome plain = train(setting, 3);
        const Outcome observed = train(setting, 3, kObserve);
        EXPECT_EQ(observed.digests, plain.digests);
        EXPECT_EQ(observed.losses, plain.losses);
        EXPECT_FALSE(observed.seen.empty());
      }
    }
  }
}

TEST(Recipes, OperandsAreSeenAsTheyAreQuantized) {
  for (const RecipeKind recipe : kBlockRecipes) {
    const auto seen = [&](bool whole_blocks) {
      return train({recipe, 2, true, whole_blocks}, 1, kObserve).seen;
    };
    const std::vector<std::string> slices = seen(true);
    EXPECT_THAT(slices, Contains(HasSubstr("linear_qkv activation shard0 forward")));
    EXPECT_THAT(slices, Contains(HasSubstr("linear_proj gradient shard0 backward")));
    const std::vector<std::string> gathered = seen(false);
    EXPECT_THAT(gathered, Contains(HasSubstr("linear_qkv activation replicated forward")));
    EXPECT_THAT(gathered, Contains(HasSubstr("linear_proj gradient replicated backward")));
    EXPECT_THAT(gathered, Contains(HasSubstr("output_layer activation shard0 forward"))) << "not quantized";
  }
}

TEST(Recipes, FaultsThatCannotStrikeAreRefused) {
  for (const auto& [fault, recipe, part] :
       {std::tuple{"scale_off@layer=decoder.layers.1.mlp.linear_fc1,tensor=weight,k=3", RecipeKind::kMxfp8,
                   "no scale per tensor"},
        std::tuple{"skip_amax_reduction@layer=decoder.layers.1.mlp.linear_fc1,tensor=activation",
                   RecipeKind::kBlock, "reduces no amax"}}) {
    TrainerOptions options;
    options.model = model(64);
    options.recipe = recipe;
    options.faults = {parse_fault(fault)};
    try {
      const Trainer trainer(options, {}, nullptr);
      ADD_FAILURE() << fault;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUsage);
      EXPECT_THAT(error.what(), HasSubstr(part));
    }
  }
}

}  // namespace
}  // namespace amaxscope::megatron
