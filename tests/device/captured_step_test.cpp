// A training step that is captured into a CUDA graph and replayed: what it computes and what is logged of it
// are those of the step that runs on the CPU, with 1, 2 and 4 ranks.
#include <set>
#include <string>

#include "tests/device/captured_graph.hpp"
#include "tests/device/step_job.hpp"

namespace amaxscope::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kLooks = R"(
often:
  enabled: True
  layers: {layer_name_regex_pattern: "fc.*"}
  transformer_engine:
    LogTensorStats:
      enabled: True
      tensors: [activation, weight, dgrad]
      stats: [min, max, mean, std, l1_norm, cur_amax, kurtosis]
    LogFp8TensorStats:
      enabled: True
      tensors: [activation, weight]
      stats: [underflows%, mse, scale_inv_min, scale_inv_max, scale_age]
      freq: 3
seldom:
  enabled: True
  layers: {layer_name_regex_pattern: fc1}
  transformer_engine:
    LogTensorStats:
      enabled: True
      tensors: [activation, gradient, output, wgrad]
      stats: [l2_norm, dynamic_range]
      freq: 3
      start_step: 4
)";
const std::string kConfig = std::string(kLooks) + std::string(kActs);
constexpr int kIterations = 12;

struct Logged {
  std::vector<std::vector<Tensor>> results;  ///< of each iteration: y, dx, dw1, dw2 on the host
  std::vector<StatRecord> records;
  int captures = 0;
  int waits = 0;  ///< between before_replay() and the end of the launch
  bool detached = false;
};

class CapturedStep : public StepJob {
 protected:
  /// captured: on the device, the first step as it is and the others from a graph. launches: in each
  /// iteration.
  Logged train(RecipeKind recipe, bool captured, std::string_view config, int launches = 1) {
    const EmulatedDevice device(options());
    const auto nccl = make_nccl();
    Logged run;
    std::unique_ptr<DebugSession> session = make_session(*nccl, config, run.records);
    const Place place = [&](const TensorView& host) { return captured ? device.put(host) : to_host(host); };
    {
      SmallModel model(recipe, *nccl, place, session.get());
      SmallModel::Gradients kept;  // where a graph leaves its results
      std::optional<CapturedGraph> graph;
      const auto capture = [&] {
        graph.reset();
        if (session != nullptr) session->begin_capture(device.stream());
        graph.emplace(device.stream(), [&] {
          const SmallModel::Gradients made = model.step();
          copy_tensor(kept.y, made.y.view());
          copy_tensor(kept.dx, made.dx.view());
          copy_tensor(kept.dw1, made.dw1.view());
          copy_tensor(kept.dw2, made.dw2.view());
          model.forget();
        });
        if (session != nullptr) session->end_capture();
        ++run.captures;
      };
      for (int i = 0; i < kIterations; ++i) {
        if (!captured || i == 0) {
          for (int launch = 0; launch < launches; ++launch) kept = model.step();
          model.forget();
        } else {
          if (!graph || (session != nullptr && session->needs_capture())) capture();
          for (int launch = 0; launch < launches; ++launch) {
            const int waits = fake::host_waits();
            if (session != nullptr) session->before_replay();
            graph->launch();
            run.waits += fake::host_waits() - waits;
          }
        }
        run.results.push_back(on_host(kept));
        model.descend(kept, /*in_place=*/true);
        if (session != nullptr) session->step();
      }
      device.finish();
    }
    if (session != nullptr) {
      run.detached = session->detached();
      session->close();
      session.reset();
    }
    device.finish();
    return run;
  }

  static void expect_same(const Logged& actual, const Logged& expected) {
    ASSERT_EQ(actual.results.size(), expected.results.size());
    for (std::size_t i = 0; i < actual.results.size(); ++i) {
      expect_same_results(actual.results[i], expected.results[i], fmt::format("iteration {}", i));
    }
  }
  static void expect_same_log(const Logged& actual, const Logged& expected) {
    EXPECT_FALSE(actual.detached);
    EXPECT_FALSE(expected.detached);
    expect_same_records(actual.records, expected.records);
  }
  [[nodiscard]] bool is_first() const { return world().rank() == 0; }
};

TEST_F(CapturedStep, ReplaysLogWhatTheStepOnTheCpuLogs) {
  const Logged expected = train(RecipeKind::kCurrent, false, kConfig);
  const Logged actual = train(RecipeKind::kCurrent, true, kConfig);
  EXPECT_EQ(actual.captures, 1);
  EXPECT_EQ(actual.waits, 0);
  expect_same(actual, expected);
  expect_same_log(actual, expected);
  // By the schedules: 6 tensors in 12 iterations, and gradient, output and wgrad of fc1 in 6 and 9.
  if (is_first()) {
    EXPECT_EQ(actual.records.size(), 6U * 12 + 3 * 2);
  }
}

TEST_F(CapturedStep, MicroBatchesThatAreReplayedAddUpAndWeightsCountOnce) {
  const Logged expected = train(RecipeKind::kCurrent, false, kConfig, 2);
  const Logged actual = train(RecipeKind::kCurrent, true, kConfig, 2);
  expect_same(actual, expected);
  expect_same_log(actual, expected);
}

TEST_F(CapturedStep, ObservingChangesNoByteOfAReplayedStep) {
  constexpr std::string_view kEveryFifth = R"(
looks:
  enabled: True
  layers: {layer_name_regex_pattern: "fc.*"}
  transformer_engine:
    LogTensorStats:
      enabled: True
      tensors: [activation, gradient, weight, output, dgrad, wgrad]
      stats: [min, max, std]
      freq: 5
)";
  for (const RecipeKind recipe : {RecipeKind::kCurrent, RecipeKind::kBlock}) {
    const Logged without = train(recipe, true, {});
    const Logged with = train(recipe, true, kEveryFifth);
    expect_same(with, without);
    EXPECT_FALSE(same(with.results[1][0], with.results[2][0])) << "the weights moved";
    std::set<std::int64_t> iterations;
    for (const StatRecord& record : with.records) iterations.insert(record.iteration);
    if (is_first()) {
      EXPECT_THAT(iterations, ::testing::ElementsAre(0, 5, 10));
    }
  }
}

TEST_F(CapturedStep, WhatNeedsTheHostIsRefusedAtCaptureByNameAlsoWhenItIsNotDueThen) {
  constexpr std::string_view kHostOnly = R"(
looks:
  enabled: True
  layers: {layer_name_regex_pattern: fc2}
  transformer_engine:
    LogTensorStats:
      enabled: True
      tensors: [activation]
      stats: [histogram]
      start_step: 7
)";
  const Logged without = train(RecipeKind::kCurrent, true, {});
  ::testing::internal::CaptureStderr();
  const Logged with = train(RecipeKind::kCurrent, true, kHostOnly);
  const std::string said = ::testing::internal::GetCapturedStderr();
  expect_same(with, without);
  EXPECT_TRUE(with.detached);
  EXPECT_THAT(said, HasSubstr("LogTensorStats of section looks"));
  EXPECT_THAT(said,
              HasSubstr("cannot look at activation of fc2 in a step that is captured into a CUDA graph: "
                        "\"histogram 32\" is computed on the host"));
  EXPECT_THAT(said, HasSubstr("Stopped observing; the training goes on untouched"));
}

TEST_F(CapturedStep, AGuardIsRefusedAtCapture) {
  constexpr std::string_view kGuard = R"(
guards:
  enabled: True
  layers: {layer_name_regex_pattern: fc1}
  transformer_engine:
    NonFiniteGuard:
      enabled: True
      tensors: [output]
      start_step: 7
)";
  ::testing::internal::CaptureStderr();
  const Logged with = train(RecipeKind::kCurrent, true, kGuard);
  EXPECT_THAT(
      ::testing::internal::GetCapturedStderr(),
      HasSubstr("NonFiniteGuard of section guards (line 6) cannot look at output of fc1 in a step that is "
                "captured into a CUDA graph: it needs the host for every tensor it looks at. Leave this "
                "layer, tensor or statistic out of section guards"));
  EXPECT_TRUE(with.detached);
}

TEST_F(CapturedStep, AFeatureThatBeginsToActAsksForAnotherCapture) {
  constexpr std::string_view kActsLater = R"(
acts:
  enabled: True
  layers: {layer_name_regex_pattern: "fc.*"}
  transformer_engine:
    DisableQuantizationGEMM:
      enabled: True
      gemms: [fprop]
      start_step: 4
      end_step: 8
    LogTensorStats:
      enabled: True
      tensors: [output]
      stats: [max]
      freq: 2
)";
  const Logged expected = train(RecipeKind::kCurrent, false, kActsLater);
  const Logged actual = train(RecipeKind::kCurrent, true, kActsLater);
  EXPECT_EQ(actual.captures, 3);
  expect_same(actual, expected);
  expect_same_log(actual, expected);
}

}  // namespace
}  // namespace amaxscope::testing
