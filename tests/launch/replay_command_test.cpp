// `amaxscope replay`: what a live run logged, a replay of its dump logs again.
#include <gmock/gmock.h>

#include "runtime/storage/safetensors.hpp"
#include "tests/launch/train_fixture.hpp"

namespace amaxscope::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kStatistics = R"(stats:
  enabled: True
  layers: {layer_types: [linear_fc1, linear_fc2, linear_qkv]}
  observe: norm
  transformer_engine:
    LogTensorStats:
      enabled: True
      tensors: [activation, weight, gradient, output, wgrad, dgrad]
      stats: [cur_amax, mean, std, l2_norm, min, max, numel]
    LogFp8TensorStats:
      enabled: True
      tensors: [activation, weight, gradient]
      stats: [mse, underflows%, scale_inv_min, fp8_current_scaling_mse]
    LogNvfp4TensorStats: {enabled: True, tensors: [activation, gradient], stats: [mse, underflows%]}
)";

constexpr const char* kDump = R"(dump:
  enabled: True
  layers: {layer_types: [all]}
  observe: norm
  transformer_engine:
    DumpTensors:
      enabled: True
      high_precision_tensor: True
      tensors: [activation, weight, gradient, output, wgrad, dgrad]
)";

/// Without LogFp8TensorStats, which observed tensors do not have under its names.
std::string statistics() {
  std::string text = kStatistics;
  text.erase(text.find("  observe: norm\n"), std::string("  observe: norm\n").size());
  return text + R"(norms:
  enabled: True
  observe: norm
  transformer_engine:
    LogTensorStats: {enabled: True, tensors: [activation], stats: [cur_amax, mean]}
)";
}

class ReplayCommand : public TrainFixture {
 protected:
  ReplayCommand() {
    write("live.yaml", statistics() + kDump);
    write("stats.yaml", statistics());
  }

  /// The lines about tensors of all ranks, the scalars of the trainer left out.
  [[nodiscard]] std::map<std::string, nlohmann::json> records(const std::string& log_dir, int ranks) const {
    std::map<std::string, nlohmann::json> result;
    for (int rank = 0; rank < ranks; ++rank) {
      const std::filesystem::path file =
          std::filesystem::path(log_dir) / "metrics" / ("rank_" + std::to_string(rank) + ".jsonl");
      for (const std::string& line : lines_of(read(file))) {
        const nlohmann::json json = nlohmann::json::parse(line);
        if (!json.contains("stats")) continue;
        const std::string key = json.at("iteration").dump() + " " + json.at("layer").get<std::string>() +
                                " " + json.at("tensor").get<std::string>() + " " +
                                json.at("phase").get<std::string>() + " " + json.at("group").dump();
        EXPECT_TRUE(result.emplace(key, json).second) << key;
      }
    }
    return result;
  }

  void expect_same_logs(int ranks, const std::vector<std::string>& options, std::size_t least) const {
    std::vector<std::string> live = {"--config", "live.yaml", "--log-dir", "live"};
    live.insert(live.end(), options.begin(), options.end());
    ASSERT_TRUE(trained(ranks, live).is_object());
    const ProgramResult result =
        amaxscope_job(ranks, {"replay", "live", "--config", "stats.yaml", "--log-dir", "again", "--json"});
    ASSERT_EQ(result.status, 0) << result.err;
    const nlohmann::json summary = nlohmann::json::parse(result.out);
    EXPECT_EQ(summary.at("world"), ranks);
    EXPECT_EQ(summary.at("iterations"), 3);
    const auto first = records("live", ranks);
    const auto second = records("again", ranks);
    EXPECT_GE(first.size(), least);
    EXPECT_EQ(first.size(), second.size());
    for (const auto& [key, record] : first) {
      ASSERT_TRUE(second.contains(key)) << key;
      EXPECT_EQ(second.at(key), record) << key;
    }
    EXPECT_TRUE(exists("again/run.json"));
  }
};

// Three iterations of three layers with six tensors each.
TEST_F(ReplayCommand, OneRankUnderDelayedScaling) {
  expect_same_logs(1, {"--micro-batches", "2"}, 3 * 3 * 6);
}

TEST_F(ReplayCommand, TwoTensorParallelRanks) {
  expect_same_logs(2, {"--tp", "2", "--sequence-parallel", "--recipe", "delayed"}, 3 * 3 * 6);
}

TEST_F(ReplayCommand, TwoTensorParallelRanksUnderCurrentScaling) {
  expect_same_logs(2, {"--tp", "2", "--sequence-parallel", "--recipe", "current", "--micro-batches", "2"},
                   3 * 3 * 6);
}

// Its slices of tokens would cut blocks: operands are gathered before they are quantized.
TEST_F(ReplayCommand, TwoTensorParallelRanksUnderBlockScaling) {
  expect_same_logs(2, {"--tp", "2", "--sequence-parallel", "--recipe", "block"}, 3 * 3 * 6);
}

// Gradients are rounded stochastically: the replay draws as the run did.
TEST_F(ReplayCommand, TwoTensorParallelRanksUnderNvfp4) {
  expect_same_logs(2, {"--tp", "2", "--sequence-parallel", "--recipe", "nvfp4"}, 3 * 3 * 6);
}

TEST_F(ReplayCommand, TwoDataParallelRanks) { expect_same_logs(2, {"--tp", "1"}, 3 * 3 * 6); }

// Live, a stage has two micro-batches under way; the replay takes one after the other.
TEST_F(ReplayCommand, TwoPipelineStages) {
  expect_same_logs(2, {"--pp", "2", "--layers", "2", "--micro-batches", "3"}, 3 * 6 * 6);
  const nlohmann::json run = nlohmann::json::parse(read("again/run.json"))["runs"][0];
  EXPECT_EQ(run["section_layers"]["stats"].size(), 6U);
}

TEST_F(ReplayCommand, TwoTensorParallelRanksInTwoPipelineStages) {
  expect_same_logs(4,
                   {"--tp", "2", "--pp", "2", "--sequence-parallel", "--layers", "2", "--micro-batches", "2"},
                   3 * 6 * 6);
}

// A stage that has dumped nothing takes part in the replay with an empty folder.
TEST_F(ReplayCommand, AStageWithoutADump) {
  std::string yaml = statistics() + kDump;
  yaml.replace(yaml.find("layer_types: [all]"), 18, "layer_name_regex_pattern: 'layers.2'");
  yaml.replace(yaml.find("  observe: norm\n  transformer_engine:\n    DumpTensors"), 16, "");
  write("second.yaml", yaml);
  ASSERT_TRUE(
      trained(2, {"--pp", "2", "--layers", "2", "--config", "second.yaml", "--log-dir", "live"}).is_object());
  const ProgramResult result =
      amaxscope_job(2, {"replay", "live", "--config", "stats.yaml", "--log-dir", "again", "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_GT(nlohmann::json::parse(result.out).at("tensors"), 0);
  EXPECT_EQ(records("again", 2).size(), 3U * 3U * 6U);
}

TEST_F(ReplayCommand, TheNanPresetWithADumpOfAPipelineRun) {
  const ProgramResult preset = amaxscope({"presets", "nan"});
  ASSERT_EQ(preset.status, 0);
  std::string dump = kDump;
  // Of GEMM tensors alone: a replay takes a micro-batch by names, and so an update before what led to it.
  dump.erase(dump.find("  observe: norm\n"), std::string("  observe: norm\n").size());
  write("nan.yaml", preset.out + "\n" + dump);
  ASSERT_TRUE(
      trained(2, {"--pp", "2", "--layers", "2", "--micro-batches", "2", "--config", "nan.yaml", "--log-dir",
                  "live", "--inject", "nan@layer=decoder.layers.2.mlp.linear_fc1,iteration=1"})
          .is_object());
  const ProgramResult result =
      amaxscope_job(2, {"replay", "live", "--config", "nan.yaml", "--log-dir", "again", "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  for (const char* logs : {"live", "again"}) {
    std::vector<nlohmann::json> firsts;
    for (const std::string& line : lines_of(read(std::string(logs) + "/metrics/rank_1.jsonl"))) {
      const nlohmann::json json = nlohmann::json::parse(line);
      if (!json.contains("finding") || json.at("finding").at("check") != "first non-finite") continue;
      EXPECT_EQ(json.at("iteration"), 1) << logs;
      firsts.push_back(json.at("finding"));
    }
    ASSERT_EQ(firsts.size(), 1U) << logs;
    EXPECT_EQ(firsts[0].at("layer"), "decoder.layers.2.mlp.linear_fc1") << logs;
    EXPECT_EQ(firsts[0].at("tensor"), "activation") << logs;
  }
}

TEST_F(ReplayCommand, AnotherRecipeGivesOtherCodes) {
  ASSERT_TRUE(trained(1, {"--config", "live.yaml", "--log-dir", "live", "--recipe", "none"}).is_object());
  ASSERT_EQ(amaxscope_job(1, {"replay", "live/tensor_dumps", "--config", "stats.yaml", "--recipe", "current",
                              "--log-dir", "again"})
                .status,
            0);
  std::size_t quantized = 0;
  for (const auto& [key, record] : records("again", 1)) {
    if (!record.at("stats").contains("mse")) continue;
    ++quantized;
    EXPECT_EQ(record.at("recipe"), "current");
    EXPECT_EQ(record.at("stats").at("mse"), record.at("stats").at("fp8_current_scaling_mse")) << key;
  }
  EXPECT_EQ(quantized, 3U * 3U * 3U);
}

TEST_F(ReplayCommand, NeedsARankForEachFolder) {
  ASSERT_TRUE(
      trained(2, {"--config", "live.yaml", "--log-dir", "live", "--tp", "2", "--steps", "1"}).is_object());
  const ProgramResult alone = amaxscope({"replay", "live", "--config", "stats.yaml", "--log-dir", "again"});
  EXPECT_EQ(alone.status, 2);
  EXPECT_THAT(
      alone.err,
      HasSubstr(
          "is the dump of 2 ranks, and 1 would replay it; start one rank for each folder: mpirun -n 2"));
  EXPECT_FALSE(exists("again"));
}

/// Dumps of another tool: the values, the layer, the tensor and the iteration.
class ForeignDump : public ReplayCommand {
 protected:
  void dump(int rank, const std::string& name, const Tensor& x,
            std::map<std::string, std::string> metadata) const {
    const std::filesystem::path folder = folder_ / "dump" / ("rank_" + std::to_string(rank));
    std::filesystem::create_directories(folder);
    write_safetensors(folder / (name + ".safetensors"), {{{"high_precision", x}}}, metadata);
  }
  [[nodiscard]] nlohmann::json replayed(int ranks) const {
    write(
        "all.yaml",
        "s:\n  enabled: True\n  layers: {layer_types: [all]}\n  transformer_engine:\n"
        "    LogTensorStats: {enabled: True, tensors: [activation, weight], stats: [cur_amax, numel, mean]}\n"
        "    LogFp8TensorStats: {enabled: True, tensors: [activation, weight], stats: "
        "[fp8_current_scaling_scale_inv_max]}\n");
    const ProgramResult result =
        amaxscope_job(ranks, {"replay", "dump", "--config", "all.yaml", "--log-dir", "again", "--json"});
    EXPECT_EQ(result.status, 0) << result.err;
    return result.status == 0 ? nlohmann::json::parse(result.out) : nlohmann::json();
  }
  [[nodiscard]] std::string refusal(int ranks) const {
    write("all.yaml", statistics());
    const ProgramResult result =
        amaxscope_job(ranks, {"replay", "dump", "--config", "all.yaml", "--log-dir", "again"});
    EXPECT_EQ(result.status, 2) << result.out << result.err;
    return result.err;
  }
};

TEST_F(ForeignDump, NeedsOnlyNameAndIteration) {
  dump(0, "a", Tensor::of<float>({1, -3}, Shape{1, 2}),
       {{"layer", "fc1"}, {"tensor", "activation"}, {"iteration", "7"}});
  dump(0, "b", Tensor::of<float>({5, 5}, Shape{1, 2}),
       {{"layer", "fc1"}, {"tensor", "activation"}, {"iteration", "9"}});
  const nlohmann::json summary = replayed(1);
  EXPECT_EQ(summary.at("tensors"), 2);
  EXPECT_EQ(summary.at("first_iteration"), 7);
  EXPECT_EQ(summary.at("last_iteration"), 9);
  const auto seen = records("again", 1);
  EXPECT_EQ(seen.size(), 2U);
  EXPECT_EQ(seen.at("7 fc1 activation forward [0]").at("stats").at("cur_amax"), 3);
  EXPECT_EQ(seen.at("9 fc1 activation forward [0]").at("stats").at("mean"), 5);
}

// Rank 1 dumped no activation of its own, and still the group's amax is made by both.
TEST_F(ForeignDump, ARankMayLackWhatOthersHave) {
  const std::map<std::string, std::string> split = {
      {"layer", "fc2"}, {"iteration", "0"}, {"tp_ranks", "0,1"}, {"layout", "shard1"}};
  std::map<std::string, std::string> activation = split;
  activation["tensor"] = "activation";
  std::map<std::string, std::string> weight = split;
  weight["tensor"] = "weight";
  dump(0, "a", Tensor::of<float>({1, -896}, Shape{1, 2}), activation);
  dump(0, "w", Tensor::of<float>({1, 2}, Shape{1, 2}), weight);
  dump(1, "w", Tensor::of<float>({3, 4}, Shape{1, 2}), weight);
  EXPECT_EQ(replayed(2).at("tensors"), 3);
  const auto seen = records("again", 2);
  EXPECT_EQ(seen.at("0 fc2 activation forward [0,1]").at("stats").at("cur_amax"), 896);
  EXPECT_EQ(seen.at("0 fc2 activation forward [0,1]").at("stats").at("numel"), 2);
  EXPECT_EQ(seen.at("0 fc2 activation forward [0,1]").at("stats").at("fp8_current_scaling_scale_inv_max"), 2);
  EXPECT_EQ(seen.at("0 fc2 weight forward [0,1]").at("stats").at("cur_amax"), 4);
  EXPECT_EQ(seen.at("0 fc2 weight forward [0,1]").at("stats").at("numel"), 4);
}

// Two ranks that say nothing of groups, with layers of one name: two records and no sum.
TEST_F(ForeignDump, RanksWithoutGroupsStandAlone) {
  for (const int rank : {0, 1}) {
    dump(rank, "a", Tensor::of<float>({1.0F + static_cast<float>(rank), -3}, Shape{1, 2}),
         {{"layer", "fc1"}, {"tensor", "activation"}, {"iteration", "0"}});
  }
  EXPECT_EQ(replayed(2).at("tensors"), 2);
  const auto seen = records("again", 2);
  EXPECT_EQ(seen.at("0 fc1 activation forward [0]").at("stats").at("mean"), -1);
  EXPECT_EQ(seen.at("0 fc1 activation forward [1]").at("stats").at("mean"), -0.5);
}

TEST_F(ForeignDump, WhatIsNoDumpIsRefused) {
  EXPECT_THAT(refusal(1), HasSubstr("dump: there is no such directory"));
  std::filesystem::create_directories(folder_ / "dump");
  EXPECT_THAT(refusal(1), HasSubstr("holds no dump"));
  std::filesystem::create_directories(folder_ / "dump/rank_1");
  EXPECT_THAT(refusal(2), HasSubstr("has a folder rank_1, but none of rank_0"));
  std::filesystem::create_directories(folder_ / "dump/rank_0");
  EXPECT_THAT(refusal(2), HasSubstr("holds nothing to replay"));
  const Tensor x = Tensor::of<float>({1}, Shape{1, 1});
  dump(1, "x", x, {{"tensor", "activation"}, {"iteration", "0"}});
  EXPECT_THAT(refusal(2), AllOf(HasSubstr("rank 1"), HasSubstr("its metadata has no \"layer\"")));
  dump(1, "x", x,
       {{"layer", "a"},
        {"tensor", "activation"},
        {"iteration", "0"},
        {"tp_ranks", "1,2"},
        {"layout", "shard1"}});
  EXPECT_THAT(refusal(2), HasSubstr("says that its tp_ranks are 1,2, but there are 2 folders"));
  dump(1, "x", x, {{"layer", "a"}, {"tensor", "activation"}, {"iteration", "0"}, {"layout", "shard1"}});
  EXPECT_THAT(
      refusal(2),
      HasSubstr("no column- or row-parallel layer has tensors that lie as activation shard1 over 1 ranks"));
  dump(1, "x", Tensor::of<std::int64_t>({1}, Shape{1}),
       {{"layer", "a"}, {"tensor", "activation"}, {"iteration", "0"}});
  EXPECT_THAT(refusal(2), HasSubstr("high_precision is I64; F32, F16 and BF16 can be replayed"));
  EXPECT_FALSE(exists("again"));
}

}  // namespace
}  // namespace amaxscope::test
