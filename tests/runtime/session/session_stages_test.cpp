// Sessions of pipeline jobs: names over stages, what is written by whom, and stages with nothing to say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "core/error.hpp"
#include "runtime/stage_layers.hpp"
#include "tests/runtime/session/session_fixture.hpp"

namespace amaxscope::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr CollectiveTag kTag = {.traffic = Traffic::kTrainer, .what = "test"};

std::string log_weights(const std::string& pattern) {
  return fmt::format(R"(
weights:
  enabled: true
  layers: {{layer_name_regex_pattern: '{}'}}
  transformer_engine:
    LogTensorStats: {{enabled: true, tensors: [weight], stats: [max, numel]}}
)",
                     pattern);
}

class SessionStages : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::temp_directory_path() /
           fmt::format("amaxscope-stages-{}-{}", ::getpid(),
                       ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }

  [[nodiscard]] std::string text(const std::string& file) const {
    std::ostringstream all;
    all << std::ifstream(dir_ / file).rdbuf();
    return all.str();
  }
  [[nodiscard]] SessionRun run(int ranks, const ParallelSizes& sizes, const std::string& yaml) const {
    return {.ranks = ranks, .sizes = sizes, .yaml = yaml, .adjust = [this](SessionOptions& options, int) {
              options.log_dir = dir_;
            }};
  }

  fs::path dir_;
};

void feed_one(const LayerHandle& handle, float value) {
  feed(handle, TensorKind::kWeight, Tensor::of<float>({value}, {1, 1}));
}

// cases.md case 23.
TEST_F(SessionStages, ANameOfTwoStagesIsAnErrorThatNamesBothAndTheWayOut) {
  std::atomic<int> detached = 0;
  ::testing::internal::CaptureStderr();
  run_sessions(run(2, {.pp = 2}, log_weights(".*")), [&](SessionRank& self) {
    feed_one(self.session.layer(self.layer("layers.0")), 1);
    self.session.step();
    if (self.session.detached()) ++detached;
  });
  const std::string printed = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(detached, 2) << "on every rank alike";
  EXPECT_THAT(printed, AllOf(HasSubstr("layers.0 on rank 0 and on rank 1"),
                             HasSubstr("numbers that are global over the stages")));

  const auto collected = run_sessions(run(2, {.pp = 2}, log_weights(".*")), [](SessionRank& self) {
    feed_one(self.session.layer(self.layer(fmt::format("layers.{}", self.world.rank()))), 1);
    self.session.step();
    EXPECT_FALSE(self.session.detached());
  });
  EXPECT_EQ(collected->of(0, "layers.0", "weight").size(), 1U);
  EXPECT_EQ(collected->of(1, "layers.1", "weight").size(), 1U);
}

TEST_F(SessionStages, RanksThatAreNoLeadersHearOfItToo) {
  std::atomic<int> detached = 0;
  ::testing::internal::CaptureStderr();
  run_sessions(run(4, {.tp = 2, .pp = 2}, log_weights("fc1")), [&](SessionRank& self) {
    // Also where it is another kind of layer, and where no section matches it.
    static_cast<void>(self.session.layer(
        self.layer("a.fc2", self.world.rank() < 2 ? ParallelMode::kColumn : ParallelMode::kRow)));
    self.session.step();
    if (self.session.detached()) ++detached;
  });
  EXPECT_EQ(detached, 4);
  const std::string printed = ::testing::internal::GetCapturedStderr();
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_THAT(text(fmt::format("nvdlfw_inspect_logs/nvdlfw_inspect_globalrank-{}.log", rank)),
                HasSubstr("a.fc2 on ranks 0, 1 and on ranks 2, 3"));
  }
  EXPECT_THAT(printed, HasSubstr("a.fc2 on ranks 0, 1 and on ranks 2, 3"));
}

TEST_F(SessionStages, AnAlteringJobEnds) {
  constexpr const char* kFake = R"(
fake:
  enabled: true
  layers: {layer_types: [all]}
  transformer_engine:
    FakeQuant: {enabled: true, gemms: [fprop], tensors: [weight], quant_format: FP8E4M3}
)";
  ::testing::internal::CaptureStderr();
  EXPECT_THROW(run_sessions(run(2, {.pp = 2}, kFake),
                            [](SessionRank& self) {
                              static_cast<void>(self.session.layer(self.layer("layers.0")));
                              self.session.step();
                            }),
               Error);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("layers.0 on rank 0 and on rank 1"));
}

TEST_F(SessionStages, ObservedNamesCountWhereSomethingReadsThem) {
  const std::string observing = log_weights("^layers") + R"(
seen:
  enabled: true
  observe: residual
  transformer_engine:
    LogTensorStats: {enabled: true, tensors: [activation], stats: [max]}
)";
  const auto detached_by = [&](const std::string& name) {
    std::atomic<int> detached = 0;
    run_sessions(run(2, {.pp = 2}, observing), [&](SessionRank& self) {
      self.session.observe(name, "residual", Tensor::of<float>({1}, {1, 1}), Layout::kReplicated);
      // A group of the caller's own is nobody else's business.
      self.session.log_tensor_stats("layers.base", "anything", Tensor::of<float>({1}, {1, 1}));
      self.session.step();
      if (self.session.detached()) ++detached;
    });
    return detached.load();
  };
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(detached_by("router"), 0) << "no section reads it";
  EXPECT_EQ(detached_by("residual"), 2);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("residual on rank 0 and on rank 1"));
}

/// (layer, iteration) of every record in a metrics file.
std::vector<std::pair<std::string, int>> records_of(const std::string& lines) {
  std::vector<std::pair<std::string, int>> result;
  std::istringstream input(lines);
  for (std::string line; std::getline(input, line);) {
    const nlohmann::json json = nlohmann::json::parse(line);
    if (json.contains("stats")) result.emplace_back(json.at("layer"), json.at("iteration"));
  }
  return result;
}

// cases.md case 24.
TEST_F(SessionStages, TheLeadersFilesTogetherHaveEachLayerOnceAStep) {
  run_sessions(run(4, {.tp = 2, .pp = 2}, log_weights(".*")), [](SessionRank& self) {
    std::vector<LayerHandle> layers;
    const std::vector<std::string> names =
        self.world.rank() < 2 ? std::vector<std::string>{"L0", "A", "B"} : std::vector<std::string>{"L1"};
    for (const std::string& name : names) layers.push_back(self.session.layer(self.layer(name)));
    for (int step = 0; step < 3; ++step) {
      for (const LayerHandle& layer : layers) feed_one(layer, static_cast<float>(step));
      self.session.scalar("loss", step);
      self.session.step();
    }
  });
  std::multiset<std::pair<std::string, int>> all;
  int losses = 0;
  for (const auto& entry : fs::directory_iterator(dir_ / "metrics")) {
    const std::string lines = text(fs::path("metrics") / entry.path().filename());
    for (const auto& record : records_of(lines)) all.insert(record);
    std::istringstream input(lines);
    for (std::string line; std::getline(input, line);)
      losses += line.find("\"loss\"") != std::string::npos ? 1 : 0;
  }
  std::multiset<std::pair<std::string, int>> expected;
  for (int step = 0; step < 3; ++step) {
    for (const char* name : {"L0", "A", "B", "L1"}) expected.emplace(name, step);
  }
  EXPECT_EQ(all, expected);
  EXPECT_EQ(losses, 3) << "a scalar is written once";

  const nlohmann::json run = nlohmann::json::parse(text("run.json"))["runs"][0];
  EXPECT_EQ(run["section_layers"]["weights"], nlohmann::json({"L0", "A", "B", "L1"}));
  EXPECT_EQ(run["parallel"]["pp"], 2);
  EXPECT_THAT(text("nvdlfw_inspect_logs/nvdlfw_inspect_globalrank-0.log"),
              HasSubstr("section weights matches: L0, A, B, L1"));
  EXPECT_THAT(text("nvdlfw_inspect_logs/nvdlfw_inspect_globalrank-2.log"), Not(HasSubstr("matches")));
}

// cases.md case 14: the pattern is of the second stage's layers only.
TEST_F(SessionStages, AStageWithoutAMatchedLayerSendsNothingAfterTheFirstStep) {
  const auto collected =
      run_sessions(run(4, {.tp = 2, .pp = 2}, log_weights(R"(decoder\.1\.)")), [](SessionRank& self) {
        const int stage = self.world.rank() / 2;
        const LayerHandle layer = self.session.layer(self.layer(fmt::format("decoder.{}.fc1", stage)));
        feed_one(layer, 1);
        self.session.step();
        self.world.barrier(kTag);
        const std::uint64_t before = self.debug_calls();
        self.world.barrier(kTag);
        for (int step = 1; step < 4; ++step) {
          feed_one(layer, 1);
          self.session.step();
        }
        self.world.barrier(kTag);
        EXPECT_EQ(self.debug_calls() - before, stage == 0 ? 0U : 3U * 2U)
            << "rank " << self.world.rank() << ": a MAX and a SUM each";
      });
  EXPECT_EQ(collected->of(2, "decoder.1.fc1", "weight").size(), 4U);
  EXPECT_EQ(nlohmann::json::parse(text("run.json"))["runs"][0]["section_layers"]["weights"],
            nlohmann::json({"decoder.1.fc1"}));
}

// cases.md rule 1, with stages: two data-parallel ranks in each.
TEST_F(SessionStages, LayersThatDidNotRunContributeTheIdentity) {
  const std::string activations = R"(
acts:
  enabled: true
  layers: {layer_types: [all]}
  transformer_engine:
    LogTensorStats: {enabled: true, tensors: [activation], stats: [max, mean, numel]}
)";
  const auto collected = run_sessions(run(4, {.pp = 2}, activations), [](SessionRank& self) {
    const int rank = self.world.rank();
    const LayerHandle layer = self.session.layer(self.layer(fmt::format("decoder.{}.fc1", rank / 2)));
    for (int step = 0; step < 4; ++step) {
      // Step 1: rank 3 skips its layer. Step 2: the whole second stage does, as in a skipped step. Step 3:
      // rank 0 and rank 2 do.
      const bool skips = (step == 1 && rank == 3) || (step == 2 && rank >= 2) || (step == 3 && rank % 2 == 0);
      if (!skips)
        feed(layer, TensorKind::kActivation,
             Tensor::of<float>({1.0F, -3.0F - static_cast<float>(rank)}, {1, 2}));
      self.session.step();
      EXPECT_FALSE(self.session.detached());
    }
  });
  const auto numels = [&](int rank, const std::string& layer) {
    std::vector<std::pair<std::int64_t, double>> result;
    for (const StatRecord& record : collected->of(rank, layer, "activation"))
      result.emplace_back(record.iteration, stat(record, "numel"));
    return result;
  };
  using Numel = std::pair<std::int64_t, double>;
  EXPECT_THAT(numels(0, "decoder.0.fc1"), ElementsAre(Numel(0, 4), Numel(1, 4), Numel(2, 4), Numel(3, 2)));
  EXPECT_THAT(numels(2, "decoder.1.fc1"), ElementsAre(Numel(0, 4), Numel(1, 2), Numel(3, 2)));
  EXPECT_EQ(stat(collected->of(2, "decoder.1.fc1", "activation").at(1), "mean"), (1.0 - 5.0) / 2)
      << "rank 2 alone";
  EXPECT_EQ(stat(collected->of(2, "decoder.1.fc1", "activation").at(2), "mean"), (1.0 - 6.0) / 2)
      << "rank 3 alone";
}

TEST(StageLayers, TravelAsText) {
  const StageLayers stage{
      .ranks = {2, 3}, .names = {"a b\t\"x\"", "line\nbreak"}, .sections = {{"s", {}}, {"t", {"y"}}}};
  EXPECT_EQ(stage_layers_from(to_text(stage)), stage);
}

TEST(StageLayers, ManySharedNamesAreCutShort) {
  StageLayers stage{.ranks = {0}, .names = {}, .sections = {}};
  for (int i = 0; i < 12; ++i) stage.names.push_back(fmt::format("layers.{}", i));
  StageLayers other = stage;
  other.ranks = {1};
  EXPECT_THAT(names_of_several_stages(std::vector{stage}), IsEmpty());
  EXPECT_THAT(names_of_several_stages(std::vector{stage, other}), HasSubstr("and 2 more"));
}

}  // namespace
}  // namespace amaxscope::testing
