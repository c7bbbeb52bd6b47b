#include "launch/train_options.hpp"

#include <gmock/gmock.h>

#include <functional>

#include "core/error.hpp"

namespace amaxscope::launch {
namespace {

using ::testing::HasSubstr;

TrainOptions parsed(std::vector<std::string> arguments) {
  CLI::App app;
  TrainOptions options;
  add_train_options(app, options);
  std::ranges::reverse(arguments);  // CLI11 takes them from the back
  app.parse(arguments);
  return options;
}

/// The message of the refusal; empty when accepted.
std::string refusal(const std::function<void(TrainOptions&)>& change, int world_size = 1) {
  TrainOptions options;
  change(options);
  try {
    validate(options, world_size);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    return error.what();
  }
  return {};
}

TEST(TrainOptions, DefaultsAreValid) {
  EXPECT_EQ(refusal([](TrainOptions&) {}), "");
  EXPECT_EQ(refusal([](TrainOptions&) {}, 8), "");
}

TEST(TrainOptions, TheLastMentionCounts) { EXPECT_EQ(parsed({"--steps", "10", "--steps=20"}).steps, 20); }

TEST(TrainOptions, DataAndInjectAreCollected) {
  const TrainOptions options =
      parsed({"--data", "a", "--inject", "nan@layer=x", "--data", "b", "--inject", "nan@layer=y"});
  EXPECT_EQ(options.data, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(options.inject, (std::vector<std::string>{"nan@layer=x", "nan@layer=y"}));
}

TEST(TrainOptions, WorldMustBeDivisibleByTp) {
  EXPECT_EQ(refusal([](TrainOptions& o) { o.tp = 2; }, 3),
            "the job's number of ranks 3 is not divisible by --tp 2");
  EXPECT_EQ(refusal([](TrainOptions& o) { o.tp = 2; }, 1),
            "the job's number of ranks 1 is not divisible by --tp 2");
  EXPECT_EQ(refusal([](TrainOptions& o) { o.tp = 2; }, 4), "");
}

TEST(TrainOptions, HeadsMustBeDivisibleByTp) {
  EXPECT_EQ(refusal([](TrainOptions& o) { o.tp = 4, o.heads = 2, o.hidden = 64; }, 4),
            "--heads 2 is not divisible by --tp 4");
}

TEST(TrainOptions, HiddenMustBeDivisibleByHeads) {
  EXPECT_EQ(refusal([](TrainOptions& o) { o.hidden = 130; }), "--hidden 130 is not divisible by --heads 4");
}

TEST(TrainOptions, TokensCannotHaveMoreExpertsThanThereAre) {
  EXPECT_EQ(refusal([](TrainOptions& o) { o.top_k = 2; }),
            "--top-k 2 of --experts 0; a token cannot have more than there are");
  EXPECT_EQ(refusal([](TrainOptions& o) { o.experts = 2, o.top_k = 2; }), "");
}

TEST(TrainOptions, Fp8WeightsNeedARecipe) {
  EXPECT_THAT(refusal([](TrainOptions& o) { o.fp8_weights = true, o.recipe = "none"; }),
              HasSubstr("needs a recipe"));
  EXPECT_EQ(refusal([](TrainOptions& o) { o.fp8_weights = true; }), "");
}

TEST(TrainOptions, SavingNeedsAPlaceAndATime) {
  EXPECT_THAT(refusal([](TrainOptions& o) { o.save_every = 2; }), HasSubstr("go together"));
  EXPECT_THAT(refusal([](TrainOptions& o) { o.save_dir = "x"; }), HasSubstr("go together"));
  EXPECT_EQ(refusal([](TrainOptions& o) { o.save_every = 2, o.save_dir = "x"; }), "");
}

TEST(TrainOptions, RotaryHeadsMustBeEven) {
  EXPECT_EQ(refusal([](TrainOptions& o) { o.rope = true, o.hidden = 12; }),
            "--rope turns pairs, but --hidden 12 / --heads 4 gives heads of 3 elements");
  EXPECT_EQ(refusal([](TrainOptions& o) { o.rope = true; }), "");
}

TEST(TrainOptions, SequenceMustBeDivisibleByTpUnderSequenceParallelismOnly) {
  EXPECT_EQ(refusal([](TrainOptions& o) { o.tp = 2, o.sequence = 33; }, 2), "");
  EXPECT_EQ(refusal([](TrainOptions& o) { o.tp = 2, o.sequence = 33, o.sequence_parallel = true; }, 2),
            "--seq 33 is not divisible by --tp 2");
}

TEST(TrainOptions, StagesMustDivideTheLayersAndTheRanks) {
  const auto with = [](int tp, int pp, std::int64_t layers) {
    return [=](TrainOptions& o) { o.tp = tp, o.pp = pp, o.layers = layers; };
  };
  EXPECT_EQ(refusal(with(2, 2, 4), 4), "");
  EXPECT_EQ(refusal(with(1, 4, 4), 8), "");
  EXPECT_EQ(refusal(with(1, 4, 6), 4), "--layers 6 is not divisible by --pp 4");
  EXPECT_EQ(refusal(with(2, 2, 4), 6), "the job's number of ranks 6 is not divisible by --tp 2 times --pp 2");
  EXPECT_EQ(refusal(with(1, 0, 2)), "--pp 0: must be at least 1");
}

TEST(TrainOptions, CountsMustBePositive) {
  EXPECT_EQ(refusal([](TrainOptions& o) { o.steps = 0; }), "--steps 0: must be at least 1");
  EXPECT_EQ(refusal([](TrainOptions& o) { o.tp = 0; }), "--tp 0: must be at least 1");
  EXPECT_EQ(refusal([](TrainOptions& o) { o.heads = -4; }), "--heads -4: must be at least 1");
  EXPECT_EQ(refusal([](TrainOptions& o) { o.micro_batches = 0; }), "--micro-batches 0: must be at least 1");
  EXPECT_THAT(refusal([](TrainOptions& o) { o.learning_rate = 0.0; }), HasSubstr("positive"));
}

TEST(TrainOptions, WhatADeviceDoesNotDoIsRefusedByName) {
  const auto on_cuda = [](const std::function<void(TrainOptions&)>& change) {
    return refusal([&](TrainOptions& o) { o.device = "cuda", change(o); });
  };
  EXPECT_EQ(on_cuda([](TrainOptions&) {}), "");
  EXPECT_EQ(on_cuda([](TrainOptions& o) { o.unsupported_gemm = "refuse"; }), "");
  EXPECT_THAT(on_cuda([](TrainOptions& o) { o.gemm = "exact"; }),
              HasSubstr("--gemm exact goes with --device cpu"));
  EXPECT_THAT(on_cuda([](TrainOptions& o) { o.inject = {"nan@layer=x"}; }),
              HasSubstr("--inject goes with --device cpu"));
  EXPECT_THAT(refusal([](TrainOptions& o) { o.device = "gpu"; }), HasSubstr("--device gpu: unknown"));
  EXPECT_THAT(refusal([](TrainOptions& o) { o.unsupported_gemm = "refuse"; }),
              HasSubstr("is about --device cuda"));
}

TEST(TrainOptions, APresetIsOneOfThoseThatThereAreAndStandsAlone) {
  EXPECT_EQ(refusal([](TrainOptions& o) { o.preset = "watch"; }), "");
  EXPECT_EQ(refusal([](TrainOptions& o) { o.preset = "wach"; }),
            "--preset wach: there are watch, nan, diagnose, gap, full");
  EXPECT_THAT(refusal([](TrainOptions& o) { o.preset = "nan", o.config = "my.yaml"; }),
              HasSubstr("give one"));
}

TEST(TrainOptions, BlocksMustDivideTheSizes) {
  for (const char* recipe : {"none", "delayed", "current", "block", "mxfp8", "nvfp4"}) {
    EXPECT_EQ(refusal([&](TrainOptions& o) { o.recipe = recipe; }), "") << recipe;
  }
  EXPECT_EQ(refusal([](TrainOptions& o) {
              o.recipe = "mxfp8";
              o.sequence = 36;
              o.batch = 2;
            }),
            "--recipe mxfp8 needs multiples of 32: --seq times --batch is 72");
  EXPECT_EQ(refusal([](TrainOptions& o) {
              o.recipe = "nvfp4";
              o.heads = 1;
              o.hidden = 40;
              o.tp = 1;
            }),
            "--recipe nvfp4 needs multiples of 16: --hidden divided by --tp is 40");
  EXPECT_EQ(refusal([](TrainOptions& o) {
              o.recipe = "nvfp4";
              o.experts = 4;
            }),
            "")
      << "an expert's rows are filled up";
}

TEST(TrainOptions, MisspeltChoiceNamesTheNearest) {
  EXPECT_EQ(refusal([](TrainOptions& o) { o.recipe = "delaid"; }),
            "--recipe delaid: unknown; did you mean \"delayed\"?");
  EXPECT_THAT(refusal([](TrainOptions& o) { o.dtype = "int8"; }),
              HasSubstr("--dtype int8: unknown; allowed: f32, bf16"));
}

TEST(TrainOptions, DescriptionFollowsWhatDecidesTheTraining) {
  const TrainOptions base;
  for (const auto& [option, value] :
       std::map<std::string, std::vector<std::string>>{{"recipe", {"--recipe", "none"}},
                                                       {"steps", {"--steps", "7"}},
                                                       {"seed", {"--seed", "9"}},
                                                       {"sequence-parallel", {"--sequence-parallel"}},
                                                       {"data", {"--data", "x"}},
                                                       {"rope", {"--rope"}},
                                                       {"experts", {"--experts", "4"}},
                                                       {"top-k", {"--top-k", "2"}},
                                                       {"fp8-weights", {"--fp8-weights"}},
                                                       {"eval-every", {"--eval-every", "5"}},
                                                       {"qk-norm", {"--qk-norm"}},
                                                       {"recompute", {"--recompute"}},
                                                       {"mlp", {"--mlp", "swiglu"}},
                                                       {"plugin", {"--plugin", "x.so"}},
                                                       {"dtype", {"--dtype", "bf16"}}}) {
    EXPECT_NE(described(parsed(value)).at(option), described(base).at(option)) << option;
  }
  EXPECT_EQ(described(parsed({"--json", "--log-dir", "x"})), described(base));
}

}  // namespace
}  // namespace amaxscope::launch
