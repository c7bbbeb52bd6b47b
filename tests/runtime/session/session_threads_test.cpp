// A session's threads: they start with the first large tensor and change no number.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <thread>

#include "runtime/quantizers/quantizer_factory.hpp"
#include "tests/runtime/session/session_fixture.hpp"

namespace amaxscope {
namespace {

using testing::Collected;
using testing::feed;
using testing::run_sessions;
using testing::SessionRank;

constexpr const char* kConfig = R"(
all:
  enabled: True
  observe: .
  layers: {layer_types: [all]}
  transformer_engine:
    LogTensorStats: {enabled: True, tensors: [activation], stats: [mean, std, l1_norm, cur_amax, kurtosis]}
)";

std::ptrdiff_t threads_of_process() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

/// A thread that was joined is counted for a little while.
bool comes_to(std::ptrdiff_t threads) {
  for (int tries = 0; tries < 5000 && threads_of_process() != threads; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return threads_of_process() == threads;
}

/// started: the threads that one inspected tensor of a layer brought with it.
std::shared_ptr<Collected> run_with(int threads, const Tensor& x, std::ptrdiff_t& started) {
  return run_sessions(
      {.yaml = kConfig,
       .adjust = [&](SessionOptions& options, int) { options.environment.threads = threads; }},
      [&](SessionRank& self) {
        const LayerHandle layer = self.session.layer(self.layer("fc1"));
        const std::ptrdiff_t before = threads_of_process();
        feed(layer, TensorKind::kActivation, x.view());
        started = threads_of_process() - before;
        self.session.observe("residual", "residual", x.view(), Layout::kReplicated);
        self.session.step();
      });
}

TEST(SessionThreads, ShareLargeTensorsAndChangeNoNumber) {
  std::vector<float> values(512 * 1024);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i)) * 3.0F;
  const Tensor x = Tensor::of<float>(std::span<const float>(values), {512, 1024});
  std::ptrdiff_t started = -1;
  const auto alone = run_with(1, x, started);
  EXPECT_EQ(started, 0);
  const auto shared = run_with(4, x, started);
  EXPECT_EQ(started, 3);
  ASSERT_FALSE(alone->records.at(0).empty());
  ASSERT_EQ(alone->records.at(0).size(), shared->records.at(0).size());
  for (std::size_t i = 0; i < alone->records.at(0).size(); ++i) {
    const StatRecord& a = alone->records.at(0)[i];
    const StatRecord& b = shared->records.at(0)[i];
    EXPECT_EQ(a.tensor, b.tensor);
    ASSERT_EQ(a.stats.size(), b.stats.size());
    for (std::size_t k = 0; k < a.stats.size(); ++k) EXPECT_EQ(a.stats[k].value, b.stats[k].value);
  }
}

TEST(SessionThreads, LiveAsLongAsAnOperandThatOutlivesTheSession) {
  const Tensor x = Tensor::of<float>(std::vector<float>(2048 * 1024, 1.5F), {2048, 1024});
  for (const RecipeKind recipe : {RecipeKind::kNone, RecipeKind::kCurrent, RecipeKind::kMxfp8}) {
    const std::ptrdiff_t before = threads_of_process();
    std::shared_ptr<QuantizedTensor> operand;
    run_sessions(
        {.yaml = kConfig, .adjust = [&](SessionOptions& options, int) { options.environment.threads = 4; }},
        [&](SessionRank& self) {
          LayerDescription description = self.layer("fc1");
          description.recipe = recipe;
          const auto parent = recipe == RecipeKind::kNone
                                  ? nullptr
                                  : make_quantizer({.recipe = recipe, .tensor = TensorKind::kActivation});
          const LayerHandle layer = self.session.layer(description, {parent, nullptr, nullptr});
          operand = layer.quantizer(TensorKind::kActivation)->quantize(x.view(), {true, true}, {});
        });
    EXPECT_TRUE(comes_to(before + 3));
    EXPECT_EQ(operand->dequantize(DType::kF32).values<float>().back(), 1.5F);
    // Members that are held by themselves hold them, too.
    const auto members = dynamic_cast<DebugQuantizedTensor&>(*operand).prepare_for_saving();
    operand.reset();
    EXPECT_EQ(members.at(0)->dequantize(DType::kF32).values<float>().back(), 1.5F);
    EXPECT_TRUE(comes_to(before + 3));
  }
  EXPECT_TRUE(comes_to(1));
}

TEST(SessionThreads, AreNotStartedForASmallTensor) {
  std::ptrdiff_t started = -1;
  const Tensor x = Tensor::of<float>(std::vector<float>(64, 1.0F), {8, 8});
  run_with(4, x, started);
  EXPECT_EQ(started, 0);
}

}  // namespace
}  // namespace amaxscope
