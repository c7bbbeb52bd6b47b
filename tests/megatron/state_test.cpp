// Saving and restoring: what follows is bit-equal to not having stopped, and what does not fit is refused.
#include "megatron/state.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "collectives/loopback_communicator.hpp"
#include "core/error.hpp"
#include "features/builtin.hpp"
#include "megatron/model_support.hpp"
#include "megatron/recorder.hpp"
#include "megatron/trainer.hpp"
#include "runtime/sinks/file_sinks.hpp"

namespace amaxscope::megatron {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::random_batch;
using testing::session_options;

class State : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = fs::temp_directory_path() /
                 fmt::format("amaxscope-state-{}-{}", ::getpid(),
                             ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(directory_);
  }
  void TearDown() override { fs::remove_all(directory_); }

  fs::path directory_;
};

constexpr const char* kObserve = R"(
all:
  enabled: True
  layers: {layer_name_regex_pattern: .*}
  transformer_engine:
    LogTensorStats:
      enabled: True
      tensors: [activation, weight, gradient]
      stats: [min, max, mean, std, cur_amax]
      freq: 2
)";

TrainerOptions options(RecipeKind recipe) {
  TrainerOptions options;
  options.model = testing::small_model();
  options.model.qk_norm = true;
  options.model.experts = 2;
  options.recipe = recipe;
  options.dtype = DType::kBF16;
  options.micro_batches = 2;
  options.clip_norm = 1.0;
  options.learning_rate = {.peak = 3e-3, .warmup_steps = 3, .total_steps = 8, .decay = Decay::kCosine};
  options.delayed.history_length = 3;
  return options;
}

struct Outcome {
  std::vector<double> losses;
  std::vector<std::uint64_t> digests;
  std::vector<std::string> records;  ///< rank 0's from iteration 3 on
  std::vector<float> scales;
};

/// Iterations [first, 7) on two tensor-parallel ranks, saving into `save` after three; first > 0 restores.
Outcome train(const TrainerOptions& with, std::int64_t first, const fs::path& state) {
  Outcome outcome;
  outcome.digests.resize(2);
  run_loopback_ranks(2, [&](Communicator& tp) {
    const bool leads = tp.rank() == 0;
    const FeatureRegistry registry = builtin_features();
    SessionOptions observing = session_options(kObserve);
    observing.first_iteration = first;
    observing.extra_sinks.push_back(make_callback_sink([&](const StatRecord& record) {
      if (record.iteration < 3 || !leads) return;
      std::string line = fmt::format("{} {} {}", record.iteration, record.layer, record.tensor);
      for (const StatValue& stat : record.stats) line += fmt::format(" {}={}", stat.name, stat.value);
      outcome.records.push_back(line);
    }));
    DebugSession session(registry, {.world = &tp, .tp = &tp, .dp_cp = nullptr, .stage = &tp}, observing);
    Trainer trainer(with, {.world = &tp, .tp = &tp, .dp = nullptr, .amax = &tp}, &session);
    if (first > 0) trainer.load_state(state);
    EXPECT_EQ(trainer.iteration(), first);
    trainer.run(
        7 - first,
        [](std::int64_t iteration, int microbatch) {
          return random_batch(static_cast<std::uint64_t>(iteration * 10 + microbatch), 16, 64);
        },
        [&](const StepReport& report) {
          if (leads && report.iteration >= 3) outcome.losses.push_back(report.loss);
          if (first == 0 && trainer.iteration() == 3) trainer.save_state(state);
        });
    session.close();
    outcome.digests[static_cast<std::size_t>(tp.rank())] = trainer.digest();
    for (std::size_t i = 0; leads && trainer.delayed() != nullptr && i < trainer.delayed()->size(); ++i)
      outcome.scales.push_back(trainer.delayed()->slot(i).scale);
  });
  return outcome;
}

TEST_F(State, GoingOnEqualsNotHavingStopped) {
  for (const RecipeKind recipe : {RecipeKind::kNone, RecipeKind::kDelayed, RecipeKind::kCurrent}) {
    SCOPED_TRACE(to_string(recipe));
    const Outcome whole = train(options(recipe), 0, directory_);
    const Outcome rest = train(options(recipe), 3, directory_);
    EXPECT_EQ(rest.losses, whole.losses);
    EXPECT_EQ(rest.digests, whole.digests);
    EXPECT_EQ(rest.records, whole.records);
    EXPECT_EQ(rest.scales, whole.scales);
    ASSERT_EQ(whole.losses.size(), 4U);
    ASSERT_FALSE(whole.records.empty());
  }
}

Outcome with_fp8_weights(std::int64_t first, const fs::path& state) {
  TrainerOptions with = options(RecipeKind::kDelayed);
  with.fp8_weights = true;
  return train(with, first, state);
}

TEST_F(State, OfFp8WeightsToo) {
  const Outcome whole = with_fp8_weights(0, directory_);
  EXPECT_EQ(with_fp8_weights(3, directory_).digests, whole.digests);
}

TEST_F(State, OfRandomStreamsToo) {
  TrainerOptions with = options(RecipeKind::kNvfp4);
  with.model.experts = 0;
  const Outcome whole = train(with, 0, directory_);
  EXPECT_EQ(train(with, 3, directory_).digests, whole.digests);
}

/// What loading into a trainer with these options says.
std::string refusal(const TrainerOptions& with, const fs::path& state) {
  Trainer trainer(with, {}, nullptr);
  const std::uint64_t before = trainer.digest();
  try {
    trainer.load_state(state);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInput);
    EXPECT_EQ(trainer.digest(), before) << "nothing has changed";
    EXPECT_EQ(trainer.iteration(), 0);
    return error.what();
  }
  return "";
}

TEST_F(State, WhatDoesNotFitIsRefusedAndNamed) {
  {
    Trainer trainer(options(RecipeKind::kCurrent), {}, nullptr);
    trainer.save_state(directory_);
  }
  EXPECT_EQ(refusal(options(RecipeKind::kCurrent), directory_), "");
  TrainerOptions wider = options(RecipeKind::kCurrent);
  wider.model.ffn_hidden = 64;
  EXPECT_THAT(refusal(wider, directory_), AllOf(HasSubstr("rank_0.safetensors"),
                                                HasSubstr("linear_fc1.gemm_0.weight"), HasSubstr("shape")));
  TrainerOptions deeper = options(RecipeKind::kCurrent);
  deeper.model.layers = 3;
  EXPECT_THAT(refusal(deeper, directory_), HasSubstr("has no tensor master/decoder.layers.3"));
  EXPECT_THAT(refusal(options(RecipeKind::kDelayed), directory_), HasSubstr("has no tensor delayed/"));
  EXPECT_THAT(refusal(options(RecipeKind::kCurrent), directory_ / "nowhere"), HasSubstr("nowhere"));
  run_loopback_ranks(2, [&](Communicator& tp) {
    Trainer trainer(options(RecipeKind::kCurrent), {.world = &tp, .tp = &tp, .dp = nullptr, .amax = &tp},
                    nullptr);
    EXPECT_THROW(trainer.load_state(directory_), Error);
  });
  std::ofstream(state_file(directory_, 0)) << "not a state";
  EXPECT_THAT(refusal(options(RecipeKind::kCurrent), directory_), HasSubstr("rank_0.safetensors"));
}

TEST_F(State, TheSessionMustBeAtTheIteration) {
  Trainer saving(options(RecipeKind::kNone), {}, nullptr);
  saving.step([](std::int64_t, int) { return random_batch(1, 16, 64); });
  saving.save_state(directory_);
  const FeatureRegistry registry = builtin_features();
  DebugSession session(registry, {}, session_options(kObserve));
  Trainer trainer(options(RecipeKind::kNone), {}, &session);
  EXPECT_THROW(trainer.load_state(directory_), Error);
}

TEST_F(State, TheNewestOfAFolderIsFound) {
  EXPECT_THROW(find_state(directory_), Error);
  fs::create_directories(directory_);
  EXPECT_THROW(find_state(directory_), Error);
  mark_newest_state(directory_, 10);
  mark_newest_state(directory_, 20);
  EXPECT_EQ(find_state(directory_), directory_ / "iter_000020");
  std::ofstream(state_file(directory_, 0)) << "a state of its own";
  EXPECT_EQ(find_state(directory_), directory_);
}

}  // namespace
}  // namespace amaxscope::megatron
