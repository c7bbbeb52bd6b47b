// Planted faults in whole trainings: each strikes when and where it should, alike in every run, and not
// before.
#include "megatron/training_faults.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "collectives/loopback_communicator.hpp"
#include "collectives/process_groups.hpp"
#include "core/error.hpp"
#include "kernels/cast.hpp"
#include "megatron/model_support.hpp"
#include "megatron/recorder.hpp"
#include "megatron/trainer.hpp"

namespace amaxscope::megatron {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::random_batch;
using testing::Seen;
using testing::to_doubles;

constexpr const char* kFc1 = "decoder.layers.1.mlp.linear_fc1";
constexpr std::size_t kRanks = 4;  // tp 2, dp 2

TrainerOptions options(RecipeKind recipe = RecipeKind::kDelayed) {
  TrainerOptions options;
  options.model = testing::small_model();
  options.model.mlp = MlpKind::kSwiglu;
  options.model.recompute = true;
  options.recipe = recipe;
  options.dtype = DType::kBF16;
  options.sequence_parallel = true;
  options.micro_batches = 2;
  options.clip_norm = 1.0;
  options.learning_rate.peak = 3e-3;
  options.delayed.algorithm = AmaxAlgorithm::kMostRecent;
  return options;
}

using Weights = std::map<std::string, std::vector<double>>;

/// What a rank has after each step.
struct Step {
  StepReport report;
  Weights weights;
  std::map<std::string, float> scales;
};
/// By rank, then by step.
using Training = std::vector<std::vector<Step>>;

Training train(TrainerOptions with, const std::string& fault, std::int64_t steps) {
  const bool has_blocks = with.recipe == RecipeKind::kMxfp8 || with.recipe == RecipeKind::kNvfp4;
  if (has_blocks) {
    with.model.hidden = 64;
    with.model.sequence = 32;
  }
  const std::int64_t tokens = 2 * with.model.sequence;
  if (!fault.empty()) with.faults = {parse_fault(fault)};
  Training run(kRanks);
  run_loopback_ranks(static_cast<int>(kRanks), [&](Communicator& world) {
    const ProcessGroups groups(world, {.tp = 2});
    Trainer trainer(
        with, {.world = &world, .tp = &groups.tp(), .dp = &groups.dp(), .amax = &groups.tp_dp_cp()}, nullptr);
    const int dp_rank = groups.dp().rank();
    const BatchSource batches = [dp_rank, tokens](std::int64_t iteration, int microbatch) {
      return random_batch(static_cast<std::uint64_t>(iteration * 100 + microbatch * 10 + dp_rank), tokens,
                          64);
    };
    for (std::int64_t i = 0; i < steps; ++i) {
      Step step{trainer.step(batches), {}, {}};
      for (const Parameter* const parameter : trainer.model().parameters())
        step.weights[parameter->name] = to_doubles(parameter->master.view());
      for (std::size_t slot = 0; trainer.delayed() != nullptr && slot < trainer.delayed()->size(); ++slot)
        step.scales[trainer.delayed()->slot(slot).name] = trainer.delayed()->slot(slot).scale;
      run[static_cast<std::size_t>(world.rank())].push_back(std::move(step));
    }
  });
  return run;
}

/// Names of parameters that differ between two states.
std::vector<std::string> differing(const Weights& a, const Weights& b) {
  std::vector<std::string> names;
  for (const auto& [name, values] : a) {
    if (values != b.at(name)) names.push_back(name);
  }
  return names;
}

struct Planted {
  const char* fault;
  RecipeKind recipe = RecipeKind::kDelayed;
};

class EveryFault : public ::testing::TestWithParam<Planted> {};

// All are planted at iteration 2 of four.
TEST_P(EveryFault, StrikesFromItsIterationOnAndIsReproducible) {
  const Training clean = train(options(GetParam().recipe), "", 4);
  const Training struck = train(options(GetParam().recipe), GetParam().fault, 4);
  const Training again = train(options(GetParam().recipe), GetParam().fault, 4);
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    for (const std::size_t sound : {0U, 1U}) {
      EXPECT_THAT(differing(struck[rank][sound].weights, clean[rank][sound].weights), IsEmpty());
      EXPECT_EQ(struck[rank][sound].report.loss, clean[rank][sound].report.loss);
      EXPECT_EQ(struck[rank][sound].scales, clean[rank][sound].scales);
    }
    EXPECT_FALSE(differing(struck[rank][3].weights, clean[rank][3].weights).empty()) << rank;
    for (std::size_t step = 0; step < 4; ++step) {
      EXPECT_EQ(differing(again[rank][step].weights, struck[rank][step].weights), std::vector<std::string>{});
      EXPECT_EQ(again[rank][step].report.loss, struck[rank][step].report.loss);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, EveryFault,
    ::testing::Values(Planted{"amax_over_dp@iteration=2"},
                      Planted{"skip_amax_reduction@layer=decoder.layers.1.mlp.linear_fc1,iteration=2",
                              RecipeKind::kCurrent},
                      Planted{"stale_weight@layer=decoder.layers.1.mlp.linear_fc1,iteration=2"},
                      Planted{"stale_columnwise@layer=decoder.layers.1.mlp.linear_fc1,iteration=2",
                              RecipeKind::kCurrent},
                      Planted{"recompute_in_bf16@iteration=2", RecipeKind::kCurrent},
                      Planted{"grow_channel@layer=decoder.layers.1.mlp.linear_fc1,iteration=2,channel=70"},
                      Planted{"skip_gradient_reduction@iteration=2"},
                      Planted{"no_master_weights@iteration=2"}, Planted{"adam_lag@iteration=2"},
                      Planted{"scale_rounded_down@iteration=2", RecipeKind::kMxfp8},
                      Planted{"fixed_rounding_seed@iteration=2", RecipeKind::kNvfp4}),
    [](const auto& tested) {
      const std::string text = tested.param.fault;
      return text.substr(0, text.find('@'));
    });

// Ranks 0 and 1 are tp 0 and 1 of dp 0, ranks 2 and 3 of dp 1.
TEST(AmaxOverDp, ScalesOfSplitTensorsDifferOverTpAndAgreeOverDp) {
  const Training run = train(options(), "amax_over_dp@iteration=1", 2);
  const std::string weight = std::string(kFc1) + ".weight";
  for (std::size_t rank = 1; rank < kRanks; ++rank)
    EXPECT_EQ(run[rank][0].scales, run[0][0].scales) << "sound in iteration 0";
  EXPECT_NE(run[1][1].scales.at(weight), run[0][1].scales.at(weight));
  EXPECT_EQ(run[2][1].scales, run[0][1].scales);
  EXPECT_EQ(run[3][1].scales, run[1][1].scales);
}

// fc1 has 128 channels, so channel 70 is number 6 of tp rank 1: rows 12 and 13 of its part.
TEST(GrowChannel, AlignsAndGrowsOneChannelOfItsOwner) {
  TrainerOptions frozen = options(RecipeKind::kNone);
  frozen.learning_rate.peak = 0;  // so that nothing else moves the weights
  const std::string fault = fmt::format("grow_channel@layer={},iteration=1,channel=70", kFc1);
  const Training run = train(frozen, fault, 3);
  const std::string name = std::string(kFc1) + ".weight";
  for (const std::size_t rank : {0U, 2U})
    EXPECT_THAT(differing(run[rank][2].weights, run[rank][0].weights), IsEmpty()) << "not the owner";
  for (const std::size_t rank : {1U, 3U}) {
    EXPECT_THAT(differing(run[rank][2].weights, run[rank][0].weights), ElementsAre(name));
    const std::vector<double>& before = run[rank][0].weights.at(name);
    const std::vector<double>& after = run[rank][2].weights.at(name);
    for (std::size_t i = 0; i < before.size(); ++i) {
      const std::size_t row = i / 32;
      const double gate = before[row == 13 ? i - 32 : i];
      if (row == 12 || row == 13) {
        EXPECT_NEAR(after[i], gate * 1.02 * 1.02, std::abs(gate) * 1e-6) << i;
      } else {
        EXPECT_EQ(after[i], before[i]) << i;
      }
    }
  }
}

TEST(SkipGradientReduction, LeavesReplicasOfOneWeightApart) {
  const Training run = train(options(), "skip_gradient_reduction@iteration=1", 2);
  const std::string weight = "decoder.final_layernorm.weight";
  const auto replicas_apart = [&](std::size_t step) {
    std::vector<std::string> names;
    for (const auto& [name, values] : run[0][step].weights) {
      const bool is_split =
          name.find("word_embeddings") != std::string::npos || name.find("linear_") != std::string::npos;
      const bool is_norm =
          name.find("layer_norm") != std::string::npos || name.find("layernorm") != std::string::npos;
      if ((!is_split || is_norm) && values != run[1][step].weights.at(name)) names.push_back(name);
    }
    return names;
  };
  EXPECT_THAT(replicas_apart(0), IsEmpty());
  // The norm that clips differs over tp with it, and moves every other replica by another factor.
  EXPECT_THAT(replicas_apart(1), ::testing::Contains(weight));
  TrainerOptions unclipped = options();
  unclipped.clip_norm = 0;
  const Training alone = train(unclipped, "skip_gradient_reduction", 1);
  EXPECT_NE(alone[0][0].weights.at(weight), alone[1][0].weights.at(weight));
  EXPECT_EQ(alone[0][0].weights.at("decoder.final_layernorm.bias"),
            alone[1][0].weights.at("decoder.final_layernorm.bias"));
}

TEST(NoMasterWeights, KeepsBf16Only) {
  const Training run = train(options(), "no_master_weights@iteration=1", 2);
  const auto is_bf16 = [](double value) { return to_float(to_bf16(static_cast<float>(value))) == value; };
  const auto all_bf16 = [&](const Weights& weights) {
    return std::ranges::all_of(weights,
                               [&](const auto& one) { return std::ranges::all_of(one.second, is_bf16); });
  };
  EXPECT_FALSE(all_bf16(run[0][0].weights));
  EXPECT_TRUE(all_bf16(run[0][1].weights));
}

// The step is 64 times too long in the direction of a gradient that nothing is wrong with, whatever the
// precision.
TEST(AdamLag, SpikesTheLossWithoutAnyQuantization) {
  const Training clean = train(options(RecipeKind::kNone), "", 6);
  const Training run = train(options(RecipeKind::kNone), "adam_lag@iteration=2,k=6", 6);
  EXPECT_NEAR(run[0][2].report.gradient_norm, 64 * clean[0][2].report.gradient_norm,
              0.01 * run[0][2].report.gradient_norm);
  EXPECT_EQ(run[0][2].report.loss, clean[0][2].report.loss);
  const auto worst = [](const Training& of) {
    double loss = 0;
    for (std::size_t step = 3; step < 6; ++step) loss = std::max(loss, of[0][step].report.loss);
    return loss;
  };
  EXPECT_GT(worst(run), worst(clean) + 0.2);
}

TEST(RecomputeInBf16, IsTheBf16TensorInTheRecomputeAndNowhereElse) {
  constexpr const char* kRecord = R"(
all:
  enabled: True
  layers: {layer_name_regex_pattern: .*}
  transformer_engine:
    Recorder: {enabled: True}
)";
  std::vector<Seen> seen;
  const FeatureRegistry registry = testing::with_recorder(seen);
  DebugSession session(registry, {}, testing::session_options(kRecord));
  TrainerOptions with = options(RecipeKind::kCurrent);
  with.dtype = DType::kF32;
  with.sequence_parallel = false;
  with.micro_batches = 1;
  with.faults = {parse_fault(fmt::format("recompute_in_bf16@layer={}", kFc1))};
  Trainer trainer(with, {}, &session);
  trainer.step([](std::int64_t, int) { return random_batch(1, 16, 64); });
  int compared = 0;
  const Seen* forward = nullptr;
  for (const Seen& one : seen) {
    if (one.what == std::string(kFc1) + " activation replicated forward 0") forward = &one;
    if (one.what != std::string(kFc1) + " activation replicated recompute 0") continue;
    ++compared;
    ASSERT_NE(forward, nullptr);
    EXPECT_EQ(one.values, forward->values);
    EXPECT_NE(one.rowwise, forward->rowwise);
    for (std::size_t i = 0; i < one.values.size(); ++i)
      EXPECT_EQ(one.rowwise[i], static_cast<double>(to_float(to_bf16(static_cast<float>(one.values[i])))));
  }
  EXPECT_EQ(compared, 1);
  for (const Seen& one : seen) {
    if (one.what != "decoder.layers.2.mlp.linear_fc1 activation replicated recompute 0") continue;
    const auto same = std::ranges::find_if(seen, [](const Seen& other) {
      return other.what == "decoder.layers.2.mlp.linear_fc1 activation replicated forward 0";
    });
    EXPECT_EQ(one.rowwise, same->rowwise) << "another layer";
    ++compared;
  }
  EXPECT_EQ(compared, 2);
  session.close();
}

std::string refusal(TrainerOptions with, const std::string& fault) {
  try {
    with.faults = {parse_fault(fault)};
    Trainer trainer(with, {}, nullptr);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    return error.what();
  }
  return "";
}

TEST(TrainingFaults, ThatCannotStrikeAreRefused) {
  EXPECT_THAT(refusal(options(), "amax_over_dp"), HasSubstr("tp > 1"));
  EXPECT_THAT(refusal(options(), "skip_gradient_reduction"), HasSubstr("is not reduced over tp"));
  EXPECT_THAT(refusal(options(), "skip_gradient_reduction@parameter=x"), HasSubstr("no parameter \"x\""));
  EXPECT_THAT(refusal(options(), "e5m2_gradients"), HasSubstr("needs the recipe mxfp8"));
  EXPECT_THAT(refusal(options(), "scale_rounded_down"), HasSubstr("needs the recipe mxfp8"));
  EXPECT_THAT(refusal(options(), "fixed_rounding_seed"), HasSubstr("needs the recipe nvfp4"));
  EXPECT_THAT(refusal(options(), fmt::format("grow_channel@layer={},channel=128", kFc1)),
              HasSubstr("channel 128"));
  EXPECT_THAT(refusal(options(), "grow_channel@layer=decoder.layers.1.mlp.linear_fc2"),
              HasSubstr("gate and up"));
  TrainerOptions other = options();
  other.model.mlp = MlpKind::kGelu;
  EXPECT_THAT(refusal(other, fmt::format("grow_channel@layer={}", kFc1)), HasSubstr("gate and up"));
  other.model.recompute = false;
  EXPECT_THAT(refusal(other, "recompute_in_bf16"), HasSubstr("needs recompute"));
  other.dtype = DType::kF32;
  EXPECT_THAT(refusal(other, "no_master_weights"), HasSubstr("bf16"));
  EXPECT_THAT(refusal(options(), fmt::format("stale_weight@layer={},rank=1", kFc1)), HasSubstr("rank 1"));
  EXPECT_THAT(refusal(options(), "stale_weight@layer=output_layer"), HasSubstr("not quantized by a recipe"));
}

/// Its rank would reduce no amax in a recompute while the others wait for it.
TEST(TrainingFaults, ARecomputeInBf16OnOneRankOfASharedScaleIsRefused) {
  const std::string fault = fmt::format("recompute_in_bf16@layer={},rank=1", kFc1);
  std::string refused;
  try {
    static_cast<void>(train(options(RecipeKind::kCurrent), fault, 1));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    refused = error.what();
  }
  EXPECT_THAT(refused, HasSubstr("without rank 1 the others would wait"));
}

TEST(ParseFault, EachKindTakesItsOwnKeys) {
  EXPECT_EQ(parse_fault("adam_lag@iteration=3").exponent, 6);
  EXPECT_EQ(parse_fault("stale_weight@layer=a,microbatch=2").microbatch, 2);
  EXPECT_EQ(parse_fault("skip_gradient_reduction").parameter, "decoder.final_layernorm.weight");
  EXPECT_EQ(parse_fault("scale_rounded_down").tensor, std::nullopt);
  EXPECT_EQ(parse_fault("scale_rounded_down@tensor=gradient").tensor, TensorKind::kGradient);
  const auto error = [](const std::string& text) -> std::string {
    try {
      std::ignore = parse_fault(text);
    } catch (const Error& failure) {
      return failure.what();
    }
    return "";
  };
  EXPECT_THAT(error("adam_lag"), HasSubstr("adam_lag needs iteration="));
  EXPECT_THAT(error("adam_lag@iteration=1,rank=0"), HasSubstr("keys: iteration, k"));
  EXPECT_THAT(error("e5m2_gradients@iteration=1"), HasSubstr("keys: layer"));
  EXPECT_THAT(error("amax_over_dp@layer=a"), HasSubstr("keys: iteration"));
}

TEST(FaultHelp, NamesEveryKindOnceWithItsNumber) {
  const std::string help = fault_help();
  for (const FaultKindRow& row : fault_kinds()) {
    const std::string line = fmt::format("{:<3} {}@", row.id, row.name);
    EXPECT_NE(help.find(line), std::string::npos) << line;
    EXPECT_EQ(&row_of(row.kind), &row);
  }
  for (const char* const id :
       {"P01", "P02", "P03", "P05", "P07", "P08", "P09", "P11", "P13", "P14", "P17", "P19", "P20"})
    EXPECT_NE(help.find(id), std::string::npos) << id;
}

}  // namespace
}  // namespace amaxscope::megatron
