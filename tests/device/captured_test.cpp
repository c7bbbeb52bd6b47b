// Captured steps of one rank: what a session says, and quantizers whose scale the host decides between
// replays.
#include "core/error.hpp"
#include "runtime/quantizers/quantizer_factory.hpp"
#include "tests/device/captured_graph.hpp"
#include "tests/device/emulated_device.hpp"
#include "tests/device/observed_run.hpp"
#include "tests/kernels/values.hpp"

namespace amaxscope::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string usage_error(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage) << error.what();
    return error.what();
  }
  return "no error";
}

TEST_F(DeviceTest, EachReplayLogsItsOwnNumbersWhenTheyAreDue) {
  const EmulatedDevice device;
  expect_each_replay_logs_its_own(device.put(Tensor(DType::kF32, {4, 8}).view()));
}

TEST_F(DeviceTest, AReplayThatWasNotAnnouncedIsFoundOut) {
  const EmulatedDevice device;
  Observed run(device.put(Tensor(DType::kF32, {4, 8}).view()), 1);
  run.observe();
  run.session().step();
  {
    const CapturedGraph graph = run.capture();
    ::testing::internal::CaptureStderr();
    run.session().step();  // iteration 2: nothing was said, nothing ran
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("neither was before_replay() called"));
    run.session().before_replay();
    graph.launch();
    run.session().step();
    graph.launch();  // with what it was told of iteration 3
    device.finish();
    run.session().before_replay();
    EXPECT_THAT(usage_error([&] { run.session().step(); }),
                HasSubstr("ran in iteration 4 with what before_replay() had said of iteration 3"));
  }
}

TEST_F(DeviceTest, AnotherConfigAsksForAnotherCaptureAndTheOldGraphHarmsNothing) {
  const EmulatedDevice device;
  Observed run(device.put(Tensor(DType::kF32, {4, 8}).view()), 1);
  const auto replay = [&](float value, const CapturedGraph& graph) {
    run.fill(value);
    run.session().before_replay();
    graph.launch();
    run.session().step();
  };
  run.fill(1.0F);
  run.observe();
  run.session().step();
  {
    CapturedGraph graph = run.capture();
    replay(2.0F, graph);
    run.session().replace_config(Observed::config(2));
    replay(3.0F, graph);
    EXPECT_TRUE(run.session().needs_capture());
    EXPECT_THAT(usage_error([&] { run.session().before_replay(); }),
                HasSubstr("another config has come into force since"));
    const CapturedGraph old = std::move(graph);
    run.fill(4.0F);
    old.launch();
    run.observe();
    run.session().step();
    const CapturedGraph next = run.capture();
    EXPECT_FALSE(run.session().needs_capture());
    replay(5.0F, next);
    old.launch();  // its kernels find that nothing is due
    replay(6.0F, next);
  }
  using Record = std::pair<std::int64_t, double>;
  EXPECT_THAT(run.records(),
              ElementsAre(Record(1, 1), Record(2, 2), Record(3, 3), Record(4, 4), Record(6, 6)));
}

TEST_F(DeviceTest, ACaptureIsAnnouncedAfterTheFirstStepAndWithRoom) {
  const EmulatedDevice device;
  Observed run(device.put(Tensor(DType::kF32, {4, 8}).view()), 2);
  EXPECT_THAT(usage_error([&] { run.session().begin_capture(device.stream()); }),
              HasSubstr("before the first step()"));
  run.session().step();
  EXPECT_THAT(usage_error([&] { run.session().begin_capture({}); }), HasSubstr("no backend"));
  run.session().begin_capture(device.stream());
  EXPECT_THAT(usage_error([&] { run.observe(); }),
              HasSubstr("observed for the first time while a step is captured"));
  run.session().end_capture();
}

TEST_F(DeviceTest, ACaptureNobodyAnnouncedDetachesAndIsNotBroken) {
  const EmulatedDevice device;
  Observed run(device.put(Tensor(DType::kF32, {4, 8}).view()), 1);
  {
    ::testing::internal::CaptureStderr();
    const CapturedGraph graph(device.stream(), [&] { run.observe(); });
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("begin_capture()"));
  }
  EXPECT_TRUE(run.session().detached());
}

TEST_F(DeviceTest, ACaptureNobodyAnnouncedIsFoundAlsoLater) {
  const EmulatedDevice device;
  Observed run(device.put(Tensor(DType::kF32, {4, 8}).view()), 1);
  run.observe();
  run.session().step();
  {
    ::testing::internal::CaptureStderr();
    const CapturedGraph graph(device.stream(), [&] { run.observe(); });
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("of which the session was not told"));
  }
  EXPECT_TRUE(run.session().detached());
}

TEST_F(DeviceTest, DelayedScalingReplaysWithTheScaleOfEachStep) {
  const EmulatedDevice device;
  DelayedScalingState on_cpu({.history_length = 2}, nullptr);
  DelayedScalingState on_device({.history_length = 2}, nullptr);
  Float8Quantizer cpu(on_cpu, on_cpu.add("a", DType::kE4M3));
  Float8Quantizer there(on_device, on_device.add("a", DType::kE4M3));
  const auto x_of = [](int step) {
    Tensor x = test::sample_tensor({16, 32}, static_cast<unsigned>(step));
    for (float& value : x.values<float>()) value *= static_cast<float>(1 << step);
    return x;
  };
  Tensor x = device.put(x_of(0).view());
  Tensor codes = device.put(Tensor(DType::kE4M3, {16, 32}).view());
  {
    EXPECT_THAT(usage_error([&] {
                  cudaGraph_t graph = nullptr;
                  const auto stream = static_cast<cudaStream_t>(device.stream().handle);
                  EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
                  try {
                    static_cast<void>(there.quantize(x.view(), {true, false}, {}));
                  } catch (...) {
                    EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess) << "the capture is whole";
                    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
                    throw;
                  }
                }),
                HasSubstr("run the step once as it is before it is captured"));
  }
  static_cast<void>(there.quantize(x.view(), {true, false}, {}));
  static_cast<void>(cpu.quantize(x_of(0).view(), {true, false}, {}));
  on_device.update();
  on_cpu.update();
  {
    const CapturedGraph graph(device.stream(), [&] {
      const auto made = there.quantize(x.view(), {true, false}, {});
      copy_tensor(codes, dynamic_cast<const Float8Tensor&>(*made).codes(Direction::kRowwise).view());
    });
    for (int step = 1; step < 6; ++step) {
      overwrite(x, x_of(step).view());
      graph.launch();
      const auto expected = cpu.quantize(x_of(step).view(), {true, false}, {});
      EXPECT_TRUE(
          same(codes.view(), dynamic_cast<const Float8Tensor&>(*expected).codes(Direction::kRowwise).view()))
          << step;
      on_device.update();
      on_cpu.update();
      EXPECT_EQ(on_device.slot(0).scale, on_cpu.slot(0).scale);
    }
  }
}

TEST_F(DeviceTest, StochasticRoundingIsRefusedInACapture) {
  const EmulatedDevice device;
  const Tensor x = device.put(test::sample_tensor({32, 32}, 3).view());
  const auto quantizer =
      make_quantizer({.recipe = RecipeKind::kNvfp4, .tensor = TensorKind::kGradient, .name = "fc1.gradient"});
  std::string said;
  {
    const CapturedGraph graph(device.stream(), [&] {
      said = usage_error([&] { static_cast<void>(quantizer->quantize(x.view(), {true, true}, {})); });
    });
  }
  EXPECT_THAT(said, HasSubstr("the same random numbers in every replay"));
}

}  // namespace
}  // namespace amaxscope::testing
