// The trainer with its linear layers on the emulated device, opened as `amaxscope train` opens it, with the
// imitated NCCL between 1, 2 and 4 ranks: the losses, weights and records of the CPU.
#include <algorithm>
#include <bit>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "core/error.hpp"
#include "launch/compute_device.hpp"
#include "megatron/trainer.hpp"
#include "tests/device/step_job.hpp"
#include "tests/megatron/model_support.hpp"
#include "tests/support/temporary_folder.hpp"

namespace amaxscope::launch {
extern "C" {
extern const ComputeModule amaxscope_compute_module;
}
}  // namespace amaxscope::launch

namespace amaxscope::testing {
namespace {

using megatron::Trainer;
using megatron::TrainerOptions;
using ::testing::AnyOf;
using ::testing::HasSubstr;

/// On the device, on the host through a copy, and what changes numerics; at every second iteration.
constexpr std::string_view kEverything = R"(
looks:
  enabled: True
  layers: {layer_types: [linear_qkv, linear_fc1, linear_fc2]}
  transformer_engine:
    LogTensorStats:
      enabled: True
      tensors: [activation, gradient, weight, output, dgrad, wgrad]
      stats: [min, max, mean, std, l2_norm, cur_amax, histogram, outliers, max_blockwise_dynamic_range]
      freq: 2
    LogFp8TensorStats:
      enabled: True
      tensors: [activation, gradient, weight]
      stats: [underflows%, mse, saturated%, fp8_current_scaling_mse, mxfp8_mse]
      freq: 2
    NonFiniteGuard:
      enabled: True
      tensors: [activation, weight, gradient]
      freq: 2
    InvariantGuard:
      enabled: True
      tensors: [activation, weight, gradient]
      freq: 2
    CompareGemm:
      enabled: True
      gemms: [fprop, wgrad]
      freq: 2
acts:
  enabled: True
  layers: {layer_types: [linear_proj]}
  transformer_engine:
    DisableQuantizationGEMM:
      enabled: True
      gemms: [wgrad]
)";
constexpr std::string_view kLater = R"(
later:
  enabled: True
  layers: {layer_name_regex_pattern: ".*"}
  transformer_engine:
    LogTensorStats:
      enabled: True
      tensors: [activation, gradient, weight, output]
      stats: [min, histogram]
      start_step: 1000
)";

struct Trained {
  std::vector<std::uint64_t> losses;  ///< bits
  std::vector<std::uint64_t> norms;
  std::uint64_t digest = 0;
  std::vector<StatRecord> records;
  std::vector<std::string> found;
  std::vector<int> kernels;                       ///< of each step
  std::vector<std::map<std::string, int>> calls;  ///< by function, but for what polls and manages pages
  bool detached = false;
};

class TrainerOnDevice : public StepJob {
 protected:
  static constexpr int kSteps = 3;

  void SetUp() override {
    StepJob::SetUp();
    connect_emulator();
  }

  [[nodiscard]] TrainerOptions options(RecipeKind recipe) const {
    TrainerOptions result;
    result.model = {.layers = 1,
                    .hidden = 32 * std::max(2, size()),
                    .heads = 4,
                    .sequence = 32,
                    .ffn_hidden = 0,
                    .vocabulary = 64,
                    .norm = {}};
    result.recipe = recipe;
    result.sequence_parallel = size() > 1;
    result.micro_batches = 2;
    result.learning_rate.peak = 1e-2;
    result.clip_norm = 1.0;
    return result;
  }

  /// config empty: without a session. state: a folder that a first training of one step is saved to, and
  /// that the one which is told of goes on from.
  Trained train(TrainerOptions options, bool on_device, std::string_view config,
                const std::filesystem::path& state = {}) const {
    const auto device = launch::amaxscope_compute_module.open({});
    const std::unique_ptr<Communicator> tp = device->connect(world(), std::chrono::seconds(60));
    if (on_device) options.device = device->stream();
    Trained run;
    const megatron::TrainerGroups groups{.world = &world(), .tp = tp.get(), .dp = nullptr, .amax = &world()};
    const megatron::BatchSource batches = [&](std::int64_t iteration, int microbatch) {
      return megatron::testing::random_batch(static_cast<std::uint64_t>(100 * iteration + microbatch),
                                             options.model.sequence, options.model.vocabulary);
    };
    if (!state.empty()) {
      Trainer first(options, groups, nullptr);
      first.set_evaluation(batches, 1);
      first.step(batches);
      first.save_state(state);
    }
    std::unique_ptr<DebugSession> session = make_debug_session(*tp, config, state.empty() ? 0 : 1, run);
    {
      Trainer trainer(options, groups, session.get());
      trainer.set_evaluation(batches, 1);
      if (!state.empty()) trainer.load_state(state);
      for (int i = 0; i < kSteps; ++i) {
        const int kernels = fake::calls("cudaLaunchKernel");
        const std::map<std::string, int> calls = calls_by_function();
        const megatron::StepReport report = trainer.step(batches);
        run.kernels.push_back(fake::calls("cudaLaunchKernel") - kernels);
        run.calls.push_back(calls_by_function());
        for (const auto& [function, count] : calls) run.calls.back()[function] -= count;
        std::erase_if(run.calls.back(), [](const auto& entry) { return entry.second == 0; });
        run.losses.push_back(std::bit_cast<std::uint64_t>(report.loss));
        run.norms.push_back(std::bit_cast<std::uint64_t>(report.gradient_norm));
      }
      run.digest = trainer.digest();
    }
    if (session != nullptr) {
      run.detached = session->detached();
      session->close();
    }
    return run;
  }

  void expect_same(const Trained& actual, const Trained& expected, std::string_view what) const {
    EXPECT_EQ(actual.losses, expected.losses) << what;
    EXPECT_EQ(actual.norms, expected.norms) << what;
    EXPECT_EQ(actual.digest, expected.digest) << what;
    EXPECT_EQ(expected.kernels[1], 0) << what << ": the other is on the host";
    EXPECT_GE(actual.kernels[1], 30) << what << ": five layers of three products, with their operands";
  }

 private:
  /// How often hosts look whether others have come, and how much page-locked memory waits for the device, is
  /// chance.
  static std::map<std::string, int> calls_by_function() {
    std::map<std::string, int> result;
    for (const std::string& function : fake::called()) result[function] = fake::calls(function);
    for (const char* chance : {"cudaEventQuery", "ncclCommGetAsyncError", "cudaGetDevice", "cudaSetDevice",
                               "cudaMallocHost", "cudaEventCreateWithFlags"})
      result.erase(chance);
    return result;
  }
  std::unique_ptr<DebugSession> make_debug_session(Communicator& tp, std::string_view config,
                                                   std::int64_t first_iteration, Trained& run) const {
    if (config.empty()) return nullptr;
    SessionOptions session;
    session.config_text = std::string(config);
    session.first_iteration = first_iteration;
    session.deadline = std::chrono::seconds(60);
    session.extra_sinks.push_back(
        make_callback_sink([&run](const StatRecord& record) { run.records.push_back(record); },
                           [](std::int64_t, const Scalars&) {},
                           [&run](const Finding& finding) { run.found.push_back(finding.what); }));
    SessionGroups groups;
    groups.world = groups.stage = &world();
    groups.tp = &tp;
    return std::make_unique<DebugSession>(builtin_features(), groups, std::move(session));
  }
};

TEST_F(TrainerOnDevice, EveryRecipeTrainsAsOnTheCpu) {
  for (const RecipeKind recipe : {RecipeKind::kNone, RecipeKind::kDelayed, RecipeKind::kCurrent,
                                  RecipeKind::kMxfp8, RecipeKind::kBlock, RecipeKind::kNvfp4}) {
    const Trained expected = train(options(recipe), false, {});
    const Trained actual = train(options(recipe), true, {});
    expect_same(actual, expected, to_string(recipe));
    EXPECT_NE(actual.losses[0], actual.losses[1]) << "the weights moved";
  }
}

TEST_F(TrainerOnDevice, SoDoBf16ExpertsRecomputesAndWeightsInFp8) {
  TrainerOptions bf16 = options(RecipeKind::kCurrent);
  bf16.dtype = DType::kBF16;
  bf16.model.recompute = true;
  bf16.eval_every = 2;
  expect_same(train(bf16, true, {}), train(bf16, false, {}), "bf16");
  // Codes under one scale would be decoded where an expert's rows are no multiple of 16, and rounded
  // otherwise.
  TrainerOptions experts = options(RecipeKind::kMxfp8);
  experts.model.experts = 3;
  experts.fp8_weights = true;
  expect_same(train(experts, true, {}), train(experts, false, {}), "experts");
}

TEST_F(TrainerOnDevice, DebuggingGivesTheRecordsOfTheCpu) {
  for (const RecipeKind recipe : {RecipeKind::kDelayed, RecipeKind::kNvfp4}) {
    const Trained expected = train(options(recipe), false, kEverything);
    const Trained actual = train(options(recipe), true, kEverything);
    EXPECT_FALSE(expected.detached);
    EXPECT_FALSE(actual.detached);
    expect_same(actual, expected, to_string(recipe));
    expect_same_records(actual.records, expected.records);
    EXPECT_EQ(actual.found, expected.found);
    if (world().rank() == 0) {
      EXPECT_GE(actual.records.size(), 36U);
    }
  }
}

TEST_F(TrainerOnDevice, NothingDueAddsNoKernelAndNoCall) {
  const Trained without = train(options(RecipeKind::kCurrent), true, {});
  const Trained with = train(options(RecipeKind::kCurrent), true, kLater);
  EXPECT_EQ(with.losses, without.losses);
  for (int i = 1; i < kSteps; ++i) {  // in the first NCCL connects
    EXPECT_EQ(with.kernels[static_cast<std::size_t>(i)], without.kernels[static_cast<std::size_t>(i)]);
    EXPECT_EQ(with.calls[static_cast<std::size_t>(i)], without.calls[static_cast<std::size_t>(i)]);
  }
}

TEST_F(TrainerOnDevice, GoesOnFromASavedState) {
  const TemporaryFolder folder;
  const std::filesystem::path state = folder.path() / "state";  // of this rank
  const TrainerOptions delayed = options(RecipeKind::kDelayed);
  const Trained expected = train(delayed, true, {});
  const Trained actual = train(delayed, true, {}, state);
  EXPECT_EQ(actual.losses[0], expected.losses[1]);
  EXPECT_EQ(actual.losses[1], expected.losses[2]);
}

TEST_F(TrainerOnDevice, WhatNeedsTheHostIsRefusedByName) {
  const auto device = launch::amaxscope_compute_module.open({});
  const auto refusal = [&](const std::function<void(TrainerOptions&)>& change) -> std::string {
    TrainerOptions changed = options(RecipeKind::kCurrent);
    changed.device = device->stream();
    changed.sequence_parallel = false;
    change(changed);
    try {
      Trainer(changed, {}, nullptr);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUsage);
      return error.what();
    }
    return "not refused";
  };
  EXPECT_THAT(refusal([](TrainerOptions& o) { o.arithmetic = megatron::GemmArithmetic::kExact; }),
              HasSubstr("without exact GEMMs"));
  EXPECT_THAT(refusal([](TrainerOptions& o) {
                o.faults = {megatron::parse_fault("nan@layer=decoder.layers.1.mlp.linear_fc1")};
              }),
              HasSubstr("planted faults"));
}

TEST_F(TrainerOnDevice, AnErrorAtAnyCallEndsItAndLeavesNothing) {
  if (world().size() > 1) GTEST_SKIP() << "a rank that fails alone leaves the others waiting";
  int failed = 0;
  for (const char* function : {"cudaMallocFromPoolAsync", "cudaLaunchKernel", "cudaMemcpyAsync",
                               "cudaEventSynchronize", "cublasLtMatmul", "cudaMallocHost"}) {
    for (const int nth : {1, 7, 40}) {
      fake::fail_at(function, nth, 13);
      try {
        static_cast<void>(train(options(RecipeKind::kCurrent), true, kEverything));
      } catch (const std::exception& error) {
        ++failed;
        EXPECT_THAT(error.what(), AnyOf(HasSubstr("cu"), HasSubstr("CUDA"))) << "what failed is said";
      }
      fake::reset();
    }
  }
  EXPECT_GT(failed, 10);
}

}  // namespace
}  // namespace amaxscope::testing
