// One `.*` section over layers in high precision, FP8 and FP4: what a layer cannot give is skipped with one
// warning, and nothing ends the run.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "runtime/quantizers/quantizer_factory.hpp"
#include "tests/runtime/session/session_fixture.hpp"

namespace amaxscope::testing {
namespace {

using ::testing::ElementsAre;

constexpr const char* kEverything = R"(
all:
  enabled: true
  layers: {layer_name_regex_pattern: .*}
  transformer_engine:
    LogFp8TensorStats:
      enabled: true
      tensors: [activation]
      stats: [underflows%, mxfp8_mse]
    LogNvfp4TensorStats:
      enabled: true
      tensors: [activation]
      stats: [mse]
    CompareGemm:
      enabled: true
      gemms: [fprop]
)";

std::vector<std::string> names(const StatRecord& record) {
  std::vector<std::string> result;
  for (const StatValue& value : record.stats) result.push_back(value.name);
  return result;
}

TEST(MixedLayers, EveryLayerGivesWhatItHas) {
  ::testing::internal::CaptureStderr();
  const auto collected = run_sessions({.ranks = 1, .yaml = kEverything}, [](SessionRank& self) {
    DelayedScalingState delayed({}, nullptr);
    const Tensor x = Tensor::of<float>(std::vector<float>(1024, 1.0F), {32, 32});
    std::vector<LayerHandle> handles;
    for (const RecipeKind recipe : {RecipeKind::kNone, RecipeKind::kDelayed, RecipeKind::kNvfp4}) {
      LayerDescription layer = self.layer(std::string(to_string(recipe)) + ".fc1");
      layer.recipe = recipe;
      OperandQuantizers parents;
      if (recipe != RecipeKind::kNone) {
        QuantizerRequest request;
        request.recipe = recipe;
        request.tensor = TensorKind::kActivation;
        request.name = layer.name;
        request.delayed = &delayed;
        parents.activation = make_quantizer(request);
      }
      handles.push_back(self.session.layer(layer, parents));
    }
    for (int step = 0; step < 2; ++step) {
      for (const LayerHandle& handle : handles) feed(handle, TensorKind::kActivation, x.view());
      self.session.step();
    }
    EXPECT_FALSE(self.session.detached());
  });
  const std::string printed = ::testing::internal::GetCapturedStderr();
  const auto times = [&](const std::string& text) {
    int count = 0;
    for (std::size_t at = printed.find(text); at != std::string::npos; at = printed.find(text, at + 1))
      ++count;
    return count;
  };
  EXPECT_EQ(times("skipped on none.fc1: underflows%: no recipe"), 1) << printed;
  EXPECT_EQ(times("skipped"), 1) << printed;
  EXPECT_THAT(names(collected->of(0, "none.fc1", "activation").at(0)), ElementsAre("mxfp8_mse", "nvfp4_mse"));
  EXPECT_THAT(names(collected->of(0, "delayed.fc1", "activation").at(0)),
              ::testing::UnorderedElementsAre("underflows%", "mxfp8_mse", "nvfp4_mse"));
  EXPECT_THAT(names(collected->of(0, "nvfp4.fc1", "activation").at(0)),
              ::testing::UnorderedElementsAre("underflows%", "mxfp8_mse", "nvfp4_mse"));
}

// Nobody reads a screen of hundreds of lines: there is one line a reason, and only from one of the ranks that
// skip the same. Each pair is in the files of all ranks.
TEST(MixedLayers, TheScreenHasOneLineAReasonAndTheFilesHaveAll) {
  const std::filesystem::path dir = std::filesystem::temp_directory_path() / "amaxscope_skipped";
  std::filesystem::remove_all(dir);
  ::testing::internal::CaptureStderr();
  run_sessions({.ranks = 2,
                .sizes = {.tp = 2},
                .yaml = kEverything,
                .adjust = [&](SessionOptions& options, int) { options.log_dir = dir; }},
               [](SessionRank& self) {
                 for (int i = 0; i < 7; ++i) self.session.layer(self.layer(fmt::format("block{}.fc1", i)));
                 self.session.step();
                 self.session.step();
               });
  const std::string printed = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(printed,
              ::testing::StartsWith("amaxscope: [rank 0] warning: skipped on block0.fc1, block1.fc1, "
                                    "block2.fc1, block3.fc1 and 3 more: underflows%: no recipe"));
  EXPECT_EQ(std::ranges::count(printed, '\n'), 1) << printed;
  for (const int rank : {0, 1}) {
    std::ifstream file(dir / "nvdlfw_inspect_logs" / fmt::format("nvdlfw_inspect_globalrank-{}.log", rank));
    int lines = 0;
    for (std::string line; std::getline(file, line);) {
      lines +=
          static_cast<int>(line.find("WARNING - block") != std::string::npos &&
                           line.find("underflows% of activation is skipped: no recipe") != std::string::npos);
    }
    EXPECT_EQ(lines, 7) << "rank " << rank;
  }
  std::filesystem::remove_all(dir);
}

constexpr const char* kDelayedWhatIf = R"(
all:
  enabled: true
  layers: {layer_types: [all]}
  transformer_engine:
    LogFp8TensorStats:
      enabled: true
      tensors: [activation, weight, gradient]
      stats: [fp8_delayed_scaling_scale_inv_max]
      freq: 2
)";

// The amaxes of a step travel together, however many tensors there are; the scale of iteration 2 is of all
// iterations before it, not only of the due ones. A step without the layer changes nothing.
TEST(DelayedWhatIf, HistoryIsReducedWithTheStep) {
  std::map<int, std::uint64_t> calls;  // of the first step, by the number of tensors
  for (const int tensors : {1, 3}) {
    const auto collected =
        run_sessions({.ranks = 2, .sizes = {.tp = 2}, .yaml = kDelayedWhatIf}, [&](SessionRank& self) {
          const LayerHandle handle = self.session.layer(self.layer("a.fc1", ParallelMode::kRow));
          const auto feed_all = [&](float value) {
            for (int i = 0; i < tensors; ++i) {
              feed(handle, static_cast<TensorKind>(i), Tensor::of<float>({value, 0}, {1, 2}).view());
            }
          };
          self.session.freeze();
          feed_all(1);
          const std::uint64_t before = self.debug_calls();
          self.session.step();
          if (self.world.rank() == 0) calls[tensors] = self.debug_calls() - before;
          feed_all(self.world.rank() == 0 ? 1.0F : 7.0F);
          self.session.step();
          feed_all(1);
          self.session.step();
          self.session.step();  // the layer does not run
          feed_all(1);
          self.session.step();
        });
    for (const int rank : {0, 1}) {
      const auto records = collected->of(rank, "a.fc1", "activation");
      ASSERT_EQ(records.size(), 3U);
      EXPECT_EQ(stat(records[0], "fp8_delayed_scaling_scale_inv_max"), 1.0);
      EXPECT_EQ(stat(records[1], "fp8_delayed_scaling_scale_inv_max"), 0x1p-6);  // 7 / 448
      EXPECT_EQ(stat(records[2], "fp8_delayed_scaling_scale_inv_max"), 0x1p-6);
    }
  }
  EXPECT_EQ(calls[1], calls[3]);
  EXPECT_GT(calls[1], 0U);
}

}  // namespace
}  // namespace amaxscope::testing
