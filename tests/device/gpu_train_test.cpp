// `train --device cuda` on a real device, as far as it goes without MPI: the trainer with its linear layers
// there, opened as the program opens it, NCCL of one rank, and a debug config that looks on the device and
// through copies on the host. Skipped without a device. Lines "figure" are for the table of launch/gpu_check.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <string>
#include <vector>

#include "collectives/loopback_communicator.hpp"
#include "features/builtin.hpp"
#include "launch/compute_device.hpp"
#include "megatron/trainer.hpp"
#include "runtime/sinks/file_sinks.hpp"

namespace amaxscope::launch {
extern "C" {
extern const ComputeModule amaxscope_compute_module;
}
}  // namespace amaxscope::launch

namespace amaxscope::testing {
namespace {

constexpr std::string_view kLooks = R"(
looks:
  enabled: True
  layers: {layer_types: [linear_qkv, linear_fc1]}
  transformer_engine:
    LogTensorStats:
      enabled: True
      tensors: [activation, weight, gradient, output]
      stats: [mean, l2_norm, cur_amax, histogram]
    LogFp8TensorStats:
      enabled: True
      tensors: [activation, weight, gradient]
      stats: [underflows%, mse, mxfp8_mse]
    NonFiniteGuard:
      enabled: True
      tensors: [activation, weight, gradient]
)";
constexpr int kSteps = 4;

struct Trained {
  std::vector<double> losses;
  std::size_t records = 0;
  bool detached = false;
  double seconds = 0;  ///< of the last step
};

Trained train(RecipeKind recipe, bool on_device, std::vector<std::string>& said) {
  Trained run;
  run_loopback_ranks(1, [&](Communicator& alone) {
    const auto device = launch::amaxscope_compute_module.open(
        {.warn = [&said](const std::string& text) { said.push_back(text); }});
    const auto tp = device->connect(alone, std::chrono::seconds(60));
    megatron::TrainerOptions options;
    options.model = {.layers = 2, .hidden = 256, .heads = 4, .sequence = 128, .ffn_hidden = 0, .norm = {}};
    options.recipe = recipe;
    options.dtype = DType::kBF16;
    if (on_device) options.device = device->stream();
    SessionOptions looks;
    looks.config_text = std::string(kLooks);
    looks.extra_sinks.push_back(make_callback_sink([&run](const StatRecord&) { ++run.records; },
                                                   [](std::int64_t, const Scalars&) {},
                                                   [](const Finding&) {}));
    SessionGroups groups;
    groups.world = groups.stage = &alone;
    groups.tp = tp.get();
    DebugSession session(builtin_features(), groups, std::move(looks));
    megatron::Trainer trainer(options, {.world = &alone, .tp = tp.get(), .amax = &alone}, &session);
    const auto batches = [](std::int64_t iteration, int microbatch) {
      megatron::Batch batch;
      for (std::int32_t i = 0; i < 512; ++i) {
        batch.inputs.push_back((i * 7 + static_cast<std::int32_t>(iteration) + microbatch) % 256);
        batch.targets.push_back((i * 7 + 13) % 256);
      }
      return batch;
    };
    for (int step = 0; step < kSteps; ++step) {
      const auto start = std::chrono::steady_clock::now();
      run.losses.push_back(trainer.step(batches).loss);
      run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    run.detached = session.detached();
    session.close();
  });
  return run;
}

TEST(GpuTraining, LossesAreWithinRoundingOfTheCpuUnderEveryRecipe) {
  std::vector<std::string> said;
  for (const RecipeKind recipe : {RecipeKind::kNone, RecipeKind::kDelayed, RecipeKind::kCurrent,
                                  RecipeKind::kMxfp8, RecipeKind::kBlock, RecipeKind::kNvfp4}) {
    const Trained expected = train(recipe, false, said);
    const Trained actual = train(recipe, true, said);
    EXPECT_FALSE(actual.detached) << to_string(recipe);
    EXPECT_EQ(actual.records, expected.records) << to_string(recipe);
    for (int step = 0; step < kSteps; ++step) {
      const auto i = static_cast<std::size_t>(step);
      // Rounding of sums moves codes; the loss is a mean over 512 tokens.
      EXPECT_NEAR(actual.losses[i], expected.losses[i],
                  (step == 0 ? 0.01 : 0.05) * std::abs(expected.losses[i]))
          << to_string(recipe) << ", step " << step;
    }
    fmt::print(
        "figure\ta small training under {}: loss on the device, on the CPU; seconds a step\t{:.5f}, {:.5f}; "
        "{:.3f}, {:.3f}\n",
        to_string(recipe), actual.losses.back(), expected.losses.back(), actual.seconds, expected.seconds);
  }
  for (const std::string& text : said) fmt::print("figure\ta training: not multiplied as it is\t{}\n", text);
}

}  // namespace
}  // namespace amaxscope::testing
