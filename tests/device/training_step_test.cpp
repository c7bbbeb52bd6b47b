// A small training step from end to end on the emulated device, with the imitated NCCL between 1, 2 and 4
// ranks: the bits of the CPU, no wait of the host, nothing of a debug runtime that has nothing to do.
#include <string>

#include "core/error.hpp"
#include "tests/device/step_job.hpp"

namespace amaxscope::testing {
namespace {

/// What acts all the time and what looks at every second iteration.
constexpr std::string_view kLooks = R"(
looks:
  enabled: True
  layers: {layer_name_regex_pattern: "fc.*"}
  transformer_engine:
    LogTensorStats:
      enabled: True
      tensors: [activation, gradient, weight, output, dgrad, wgrad]
      stats: [min, max, mean, std, l1_norm, l2_norm, cur_amax, dynamic_range]
      freq: 2
    LogFp8TensorStats:
      enabled: True
      tensors: [activation, gradient, weight]
      stats: [underflows%, mse]
      freq: 2
)";
const std::string kConfig = std::string(kLooks) + std::string(kActs);
constexpr int kSteps = 4;

struct Step {
  std::vector<Tensor> results;  ///< y, dx, dw1, dw2 on the host
  int waits = 0;                ///< of the host, in forward and backward
  int calls = 0;                ///< of CUDA, NCCL and cuBLASLt there
  int kernels = 0;
  int fetches = 0;  ///< waits in session->step() that are no collective's
};
struct Trained {
  std::vector<Step> steps;
  std::vector<StatRecord> records;
  bool detached = false;
};

class TrainingStep : public StepJob {
 protected:
  /// config empty: without a session.
  Trained train(RecipeKind recipe, bool on_device, std::string_view config) {
    const EmulatedDevice device(options());
    // Both ways over NCCL, so that sums over ranks are made in one order.
    const auto nccl = make_nccl();
    Trained run;
    std::unique_ptr<DebugSession> session = make_session(*nccl, config, run.records);
    const Place place = [&](const TensorView& host) { return on_device ? device.put(host) : to_host(host); };
    {
      SmallModel model(recipe, *nccl, place, session.get());
      for (int i = 0; i < kSteps; ++i) {
        device.finish();
        const int waits = fake::host_waits();
        const int calls = fake::all_calls();
        const int kernels = fake::calls("cudaLaunchKernel");
        const SmallModel::Gradients gradients = model.step();
        Step step{.results = {},
                  .waits = fake::host_waits() - waits,
                  .calls = fake::all_calls() - calls,
                  .kernels = fake::calls("cudaLaunchKernel") - kernels};
        step.results = on_host(gradients);
        run.steps.push_back(std::move(step));
        model.descend(gradients);
        device.finish();
        const int fetched = fetches();
        if (session != nullptr) session->step();
        run.steps.back().fetches = fetches() - fetched;
      }
    }
    if (session != nullptr) {
      run.detached = session->detached();
      session->close();
      session.reset();
    }
    device.finish();
    return run;
  }

 private:
  /// Copies of a backend to the host; NCCL polls.
  static int fetches() { return fake::calls("cudaEventSynchronize"); }
};

void expect_same_steps(const Trained& actual, const Trained& expected, std::string_view what) {
  ASSERT_EQ(actual.steps.size(), expected.steps.size());
  for (std::size_t i = 0; i < actual.steps.size(); ++i) {
    expect_same_results(actual.steps[i].results, expected.steps[i].results,
                        fmt::format("{}, step {}", what, i));
  }
}

TEST_F(TrainingStep, EveryRecipeTrainsAsOnTheCpuAndTheHostWaitsForNothing) {
  for (const RecipeKind recipe :
       {RecipeKind::kCurrent, RecipeKind::kMxfp8, RecipeKind::kBlock, RecipeKind::kNvfp4}) {
    // MXFP8 wants multiples of 32 of every rank's part.
    if (recipe == RecipeKind::kMxfp8 && SmallModel::kInner / world().size() % 32 != 0) continue;
    const Trained expected = train(recipe, false, {});
    const Trained actual = train(recipe, true, {});
    expect_same_steps(actual, expected, to_string(recipe));
    for (std::size_t i = 1; i < actual.steps.size(); ++i) {  // in the first NCCL connects
      EXPECT_EQ(actual.steps[i].waits, 0) << to_string(recipe) << ", step " << i;
      EXPECT_GE(actual.steps[i].kernels, 12) << "six tensors and six products on the device";
    }
    EXPECT_FALSE(same(actual.steps[0].results[0], actual.steps[1].results[0])) << "the weights moved";
  }
}

TEST_F(TrainingStep, DebuggingGivesTheBitsAndStatisticsOfTheCpu) {
  const Trained expected = train(RecipeKind::kCurrent, false, kConfig);
  const Trained actual = train(RecipeKind::kCurrent, true, kConfig);
  EXPECT_FALSE(expected.detached);
  EXPECT_FALSE(actual.detached);
  expect_same_steps(actual, expected, "debugged");
  // Modified, disabled and recipe's plans together; statistics wait for the end of the step.
  for (std::size_t i = 1; i < actual.steps.size(); ++i) EXPECT_EQ(actual.steps[i].waits, 0) << "step " << i;
  EXPECT_EQ(actual.steps[1].fetches, 0);
  EXPECT_EQ(actual.steps[2].fetches, 1) << "all that was due at once";

  if (world().rank() == 0) {
    EXPECT_GE(actual.records.size(), 20U);
  }
  expect_same_records(actual.records, expected.records);
}

TEST_F(TrainingStep, ADebugRuntimeWithNothingToDoAddsNoKernelAndNoCall) {
  const Trained without = train(RecipeKind::kCurrent, true, {});
  const Trained with = train(RecipeKind::kCurrent, true, kIdle);
  expect_same_steps(with, without, "idle");
  for (std::size_t i = 1; i < with.steps.size(); ++i) {
    EXPECT_EQ(with.steps[i].kernels, without.steps[i].kernels);
    EXPECT_EQ(with.steps[i].calls, without.steps[i].calls);
    EXPECT_EQ(with.steps[i].waits, 0);
  }
}

TEST_F(TrainingStep, WhatOnlyTheHostComputesGetsACopyAndChangesNothing) {
  constexpr std::string_view kHostOnly = R"(
looks:
  enabled: True
  layers: {layer_name_regex_pattern: fc1}
  transformer_engine:
    LogTensorStats:
      enabled: True
      tensors: [activation]
      stats: [{max_blockwise_dynamic_range: {block_size: 32, dims: 1}}]
)";
  const Trained without = train(RecipeKind::kCurrent, true, {});
  const Trained with = train(RecipeKind::kCurrent, true, kHostOnly);
  const Trained on_cpu = train(RecipeKind::kCurrent, false, kHostOnly);
  expect_same_steps(with, without, "host only");
  EXPECT_FALSE(with.detached);
  EXPECT_GT(with.steps[1].waits, 0) << "for the copy";
  expect_same_records(with.records, on_cpu.records);
}

TEST_F(TrainingStep, AnErrorAtAnyCallLeavesNothingBehind) {
  if (world().size() > 1) GTEST_SKIP() << "a rank that fails alone leaves the others waiting";
  int failed = 0;
  for (const char* function :
       {"cudaMallocFromPoolAsync", "cudaLaunchKernel", "cudaMemcpyAsync", "cudaEventRecord", "cublasLtMatmul",
        "cublasLtMatmulAlgoGetHeuristic", "cudaMallocHost"}) {
    for (const int nth : {1, 2, 5, 17, 60}) {
      fake::fail_at(function, nth, 13);
      try {
        static_cast<void>(train(RecipeKind::kCurrent, true, kConfig));
      } catch (const std::exception&) {
        ++failed;
      }
      fake::reset();
    }
  }
  EXPECT_GT(failed, 15);
}

}  // namespace
}  // namespace amaxscope::testing
