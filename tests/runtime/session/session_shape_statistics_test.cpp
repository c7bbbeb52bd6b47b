// Histograms, moments beyond the second, outliers, channels, trends and updates through a session of two
// ranks.
#include <gmock/gmock.h>

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/runtime/session/session_fixture.hpp"

namespace amaxscope::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

constexpr const char* kShape = R"(
shape:
  enabled: true
  layers: {layer_types: [all]}
  transformer_engine:
    LogTensorStats:
      enabled: true
      tensors: [activation, weight]
      stats: [std, skewness, kurtosis, peak_rms, histogram, {outliers: {threshold: 2}}, {outlier_channels: {top: 2}}]
)";

/// One weight of a layer, split over two ranks by rows (column-parallel) or columns (row-parallel).
StatRecord weight_of_two_ranks(const std::vector<Tensor>& shards, ParallelMode mode = ParallelMode::kColumn) {
  const auto collected =
      run_sessions({.ranks = 2, .sizes = {.tp = 2}, .yaml = kShape}, [&](SessionRank& self) {
        const LayerHandle handle = self.session.layer(self.layer("a.fc1", mode));
        feed(handle, TensorKind::kWeight, shards.at(static_cast<std::size_t>(self.world.rank())));
        self.session.step();
      });
  const StatRecord first = collected->of(0, "a.fc1", "weight").at(0);
  const StatRecord second = collected->of(1, "a.fc1", "weight").at(0);
  EXPECT_EQ(first.stats.size(), second.stats.size());
  for (std::size_t i = 0; i < first.stats.size(); ++i) {
    EXPECT_EQ(first.stats[i].name, second.stats[i].name);
    if (!std::isnan(first.stats[i].value)) {
      EXPECT_EQ(first.stats[i].value, second.stats[i].value) << first.stats[i].name;
    }
  }
  return first;
}

std::vector<Tensor> shards(std::initializer_list<float> a, std::initializer_list<float> b,
                           std::int64_t columns) {
  std::vector<Tensor> result;
  for (const auto& values : {a, b}) {
    const auto rows = static_cast<std::int64_t>(values.size()) / columns;
    result.push_back(Tensor::of<float>(values, Shape{rows, columns}));
  }
  return result;
}

TEST(SessionShapeStatistics, UnequalMeansGiveTheMomentsOfTheConcatenation) {
  // 0 0 | 0 4, and around 100: by the definition.
  const StatRecord record = weight_of_two_ranks(shards({0, 0}, {0, 4}, 1));
  EXPECT_DOUBLE_EQ(stat(record, "skewness"), 6 / std::sqrt(27.0));
  EXPECT_DOUBLE_EQ(stat(record, "kurtosis"), 21.0 / 9 - 3);
  EXPECT_EQ(stat(record, "std"), 2);
  EXPECT_EQ(stat(record, "peak_rms"), 2);
  const std::vector<double> all = {1, 2, 3, 101, 102, 110};
  double mean = 0;
  for (const double x : all) mean += x / 6;
  double m2 = 0;
  double m3 = 0;
  for (const double x : all) {
    m2 += std::pow(x - mean, 2) / 6;
    m3 += std::pow(x - mean, 3) / 6;
  }
  EXPECT_NEAR(stat(weight_of_two_ranks(shards({1, 2, 3}, {101, 102, 110}, 3)), "skewness"),
              m3 / std::pow(m2, 1.5), 1e-12);
}

TEST(SessionShapeStatistics, HistogramAddsUpOverRanksWithNanAndInf) {
  const StatRecord record = weight_of_two_ranks(shards({kNan, kInf, 0}, {1, 1.5F, -2}, 3));
  EXPECT_EQ(stat(record, "histogram_nan"), 1);
  EXPECT_EQ(stat(record, "histogram_inf"), 1);
  EXPECT_EQ(stat(record, "histogram_zero"), 1);
  EXPECT_EQ(stat(record, "histogram_2^0"), 2);
  EXPECT_EQ(stat(record, "histogram_2^1"), 1);
  EXPECT_TRUE(std::isnan(stat(record, "skewness")));
  EXPECT_NE(find_stat(record, "outliers_threshold_2%"), nullptr) << "of the finite ones";
}

TEST(SessionShapeStatistics, EmptyOnOneRankAndZeroOnTheOther) {
  const StatRecord empty = weight_of_two_ranks(shards({}, {0, 0, 0, 4}, 4));
  EXPECT_DOUBLE_EQ(stat(empty, "skewness"), 6 / std::sqrt(27.0));
  EXPECT_EQ(stat(empty, "outlier_channel_1_id"), 3);
  EXPECT_EQ(stat(empty, "outliers_threshold_2"), 0);  // 4 is not above twice its rms of 2
  const StatRecord zero = weight_of_two_ranks(shards({0, 0, 0}, {0, 0, 8}, 3));
  EXPECT_EQ(stat(zero, "outliers_threshold_2"), 1);  // rms sqrt(64 / 6)
  EXPECT_EQ(stat(zero, "outlier_channel_1_energy%"), 100);
  EXPECT_EQ(find_stat(zero, "outlier_channel_2_id"), nullptr);
  const StatRecord all_zero = weight_of_two_ranks(shards({0}, {0}, 1));
  EXPECT_EQ(find_stat(all_zero, "skewness"), nullptr);
  EXPECT_EQ(find_stat(all_zero, "peak_rms")->flags, std::vector<std::string>{"zero"});
  const StatRecord none = weight_of_two_ranks(shards({}, {}, 1));
  EXPECT_EQ(stat(none, "numel"), 0);
  EXPECT_EQ(stat(none, "histogram_zero"), 0);
}

TEST(SessionShapeStatistics, ColumnIdsAreThoseOfTheWholeTensor) {
  // The same 2 x 4 matrix: energies 2, 8, 25, 34.
  const StatRecord rows = weight_of_two_ranks(shards({1, 2, 3, 5}, {1, 2, 4, 3}, 4));
  std::vector<Tensor> columns;
  columns.push_back(Tensor::of<float>({1, 1}, Shape{2, 1}));
  columns.push_back(Tensor::of<float>({2, 3, 5, 2, 4, 3}, Shape{2, 3}));
  const StatRecord split = weight_of_two_ranks(columns, ParallelMode::kRow);
  for (const StatRecord* record : {&rows, &split}) {
    EXPECT_EQ(stat(*record, "outlier_channel_1_id"), 3);
    EXPECT_DOUBLE_EQ(stat(*record, "outlier_channel_1_energy%"), 100.0 * 34 / 69);
    EXPECT_EQ(stat(*record, "outlier_channel_2_id"), 2);
    EXPECT_DOUBLE_EQ(stat(*record, "outlier_channel_2_energy%"), 100.0 * 25 / 69);
  }
  EXPECT_EQ(split.layout, Layout::kShard1);
}

TEST(SessionShapeStatistics, ARankThatSkipsALayerHangsNobodyAndKeepsPersistence) {
  const auto collected =
      run_sessions({.ranks = 2, .sizes = {.tp = 2}, .yaml = kShape}, [](SessionRank& self) {
        const LayerHandle handle = self.session.layer(self.layer("a.fc2", ParallelMode::kRow));
        for (int step = 0; step < 3; ++step) {
          const Tensor x = self.world.rank() == 0 ? Tensor::of<float>({1, 1}, Shape{1, 2})
                                                  : Tensor::of<float>({1, 9}, Shape{1, 2});
          if (step != 1 || self.world.rank() == 1) feed(handle, TensorKind::kWeight, x);
          self.session.step();
        }
      });
  const auto records = collected->of(0, "a.fc2", "weight");
  ASSERT_EQ(records.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(stat(records[i], "outlier_channel_1_id"), 3);
    EXPECT_EQ(stat(records[i], "outlier_channel_1_due_steps"), static_cast<double>(i + 1));
  }
}

constexpr const char* kOverlapping = R"(
first:
  enabled: true
  layers: {layer_types: [all]}
  transformer_engine:
    LogTensorStats: {enabled: true, tensors: [activation], stats: [numel, max, {histogram: {bins: 8}}], freq: 2}
second:
  enabled: true
  layers: {layer_types: [fc1]}
  transformer_engine:
    LogTensorStats: {enabled: true, tensors: [activation], stats: [numel, min, {histogram: {bins: 8}}], freq: 2}
third:
  enabled: true
  layers: {layer_types: [fc1]}
  transformer_engine:
    LogTensorStats: {enabled: true, tensors: [activation], stats: [l1_norm], freq: 3}
)";

/// The reference keeps one buffer for a tensor and forgets statistics that a later section asks for.
TEST(SessionShapeStatistics, SectionsThatOverlapAddUpAndCountATensorOnce) {
  const auto collected = run_sessions({.yaml = kOverlapping}, [](SessionRank& self) {
    const LayerHandle handle = self.session.layer(self.layer("a.fc1"));
    for (int step = 0; step < 4; ++step) {
      feed(handle, TensorKind::kActivation, Tensor::of<float>({-1, 2}, Shape{1, 2}));
      self.session.step();
    }
  });
  const auto records = collected->of(0, "a.fc1", "activation");
  ASSERT_EQ(records.size(), 3U);  // 0, 2 and, of the third section alone, 3
  for (const std::size_t i : {0U, 1U}) {
    EXPECT_EQ(stat(records[i], "numel"), 2);
    EXPECT_EQ(stat(records[i], "max"), 2);
    EXPECT_EQ(stat(records[i], "min"), -1);
    EXPECT_EQ(stat(records[i], "histogram_2^1"), 1) << "declared twice, fed once";
  }
  EXPECT_EQ(stat(records[0], "l1_norm"), 3);
  EXPECT_EQ(find_stat(records[1], "l1_norm"), nullptr);
  EXPECT_EQ(stat(records[2], "l1_norm"), 3);
  EXPECT_EQ(find_stat(records[2], "numel"), nullptr);
}

TEST(SessionShapeStatistics, AtMostThreeCollectivesWithEverything) {
  run_sessions({.ranks = 2, .sizes = {.tp = 2}, .yaml = kShape}, [&](SessionRank& self) {
    const LayerHandle handle = self.session.layer(self.layer("a.fc1"));
    self.session.step();  // agreements
    for (int step = 0; step < 2; ++step) {
      feed(handle, TensorKind::kWeight, Tensor::of<float>({1, 2}, Shape{1, 2}));
      feed(handle, TensorKind::kActivation, Tensor::of<float>({1, 2}, Shape{1, 2}));
      const std::uint64_t before = self.debug_calls();
      self.session.step();
      EXPECT_LE(self.debug_calls() - before, 3U);
      EXPECT_GT(self.debug_calls(), before);
    }
  });
}

TEST(SessionShapeStatistics, BinsAreInTheRecordsAndNotInTheTextLog) {
  const std::filesystem::path dir =
      std::filesystem::temp_directory_path() / ("amaxscope_bins_" + std::to_string(::getpid()));
  run_sessions({.yaml = kShape, .adjust = [&](SessionOptions& options, int) { options.log_dir = dir; }},
               [](SessionRank& self) {
                 const LayerHandle handle = self.session.layer(self.layer("a.fc1"));
                 feed(handle, TensorKind::kWeight, Tensor::of<float>({0.25F, 0.3F}, Shape{1, 2}));
                 self.session.step();
               });
  const auto text = [](const std::filesystem::path& path) {
    std::ostringstream all;
    all << std::ifstream(path).rdbuf();
    return all.str();
  };
  const std::string log = text(dir / "nvdlfw_inspect_statistics_logs" / "nvdlfw_inspect_globalrank-0.log");
  EXPECT_THAT(log, ::testing::HasSubstr("a.fc1_weight_histogram_zero "));
  EXPECT_THAT(log, ::testing::Not(::testing::HasSubstr("histogram_2^")));
  EXPECT_THAT(text(dir / "metrics" / "rank_0.jsonl"), ::testing::HasSubstr("\"histogram_2^-2\":2"));
  std::filesystem::remove_all(dir);
}

constexpr const char* kTrends = R"(
trends:
  enabled: true
  layers: {layer_types: [all]}
  transformer_engine:
    Trends: {enabled: true, tensors: [weight], alarm: [amax_jump]}
)";

TEST(SessionShapeStatistics, TrendsOfTheReducedAmaxAndOneFindingOfTheJump) {
  const auto collected =
      run_sessions({.ranks = 2, .sizes = {.tp = 2}, .yaml = kTrends}, [](SessionRank& self) {
        const LayerHandle handle = self.session.layer(self.layer("a.fc1"));
        for (int step = 0; step < 7; ++step) {
          // The largest magnitude is on alternating ranks: 2^step, and 2^20 at the last steps.
          const float amax = step < 5 ? std::ldexp(1.0F, step) : 0x1p20F;
          const bool own = step % 2 == self.world.rank();
          feed(handle, TensorKind::kWeight, Tensor::of<float>({own ? -amax : 0.5F}, Shape{1, 1}));
          self.session.step();
        }
      });
  for (const int rank : {0, 1}) {
    const auto records = collected->of(rank, "a.fc1", "weight");
    ASSERT_EQ(records.size(), 7U);
    EXPECT_DOUBLE_EQ(stat(records[4], "amax_log2_slope"), 1.0);
    EXPECT_EQ(stat(records[5], "amax_jump_bits"), 18);  // 20 less the median of 0 1 2 3 4
  }
  std::vector<Finding> findings;
  for (const auto& [rank, found] : collected->findings)
    findings.insert(findings.end(), found.begin(), found.end());
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].check, "amax_jump");
  EXPECT_EQ(findings[0].iteration, 5);
  EXPECT_EQ(findings[0].layer, "a.fc1");
  EXPECT_EQ(findings[0].tensor, "weight");
  EXPECT_THAT(findings[0].ranks, ::testing::ElementsAre(0, 1));
}

constexpr const char* kUpdates = R"(
updates:
  enabled: true
  observe: fc1\.weight$
  transformer_engine:
    LogTensorStats: {enabled: true, stats: [update_ratio, lost_updates%, adam_ratio], freq: 2}
)";

TEST(SessionShapeStatistics, UpdatesOfAShardedParameter) {
  const auto collected =
      run_sessions({.ranks = 4, .sizes = {.tp = 2}, .yaml = kUpdates}, [](SessionRank& self) {
        // bf16 weights 3 | 4 over tp; over dp the same ones again.
        const bool first = self.groups.tp().rank() == 0;
        const Tensor weight = Tensor::of<BF16>({to_bf16(first ? 3.0F : 4.0F)}, Shape{1, 1});
        const Tensor update = Tensor::of<float>({first ? 0.5F : 1e-6F}, Shape{1, 1});
        const Tensor normalized = Tensor::of<float>({first ? 1.0F : 2.0F}, Shape{1, 1});
        const TensorView normalized_view = normalized;
        for (int step = 0; step < 3; ++step) {
          EXPECT_EQ(self.session.observes_update("a.fc1.weight", Layout::kShard0), step != 1);
          EXPECT_FALSE(self.session.observes_update("a.fc1.bias", Layout::kReplicated));
          self.session.observe("a.fc1.weight", "parameter", weight, Layout::kShard0);
          self.session.observe_update("a.fc1.weight", weight, update, Layout::kShard0, &normalized_view);
          self.session.step();
        }
      });
  const auto records = collected->of(3, "a.fc1.weight", "update");
  ASSERT_EQ(records.size(), 2U);
  EXPECT_NEAR(stat(records[1], "update_ratio"), 0.1, 1e-9);
  EXPECT_EQ(stat(records[1], "lost_updates%"), 50);
  EXPECT_DOUBLE_EQ(stat(records[1], "adam_ratio"), std::sqrt(2.5));
  EXPECT_TRUE(collected->of(0, "a.fc1.weight", "parameter").empty());
}

TEST(SessionShapeStatistics, NothingObservesUpdatesWithoutASectionThatDoes) {
  run_sessions({.yaml = kTrends}, [](SessionRank& self) {
    EXPECT_FALSE(self.session.observes_update("a.fc1.weight", Layout::kReplicated));
  });
  run_sessions({}, [](SessionRank& self) {
    EXPECT_FALSE(self.session.observes_update("a.fc1.weight", Layout::kReplicated));
  });
}

}  // namespace
}  // namespace amaxscope::testing
