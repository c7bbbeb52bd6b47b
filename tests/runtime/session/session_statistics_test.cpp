// What a session reports: reduction over ranks, micro-batches, phases and replicas.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/runtime/session/session_fixture.hpp"

namespace amaxscope::testing {
namespace {

constexpr const char* kAllStats = R"(
everything:
  enabled: true
  layers: {layer_types: [all]}
  transformer_engine:
    LogTensorStats:
      enabled: true
      tensors: [activation, weight, gradient, output, dgrad, wgrad]
      stats: [min, max, mean, std, l1_norm, l2_norm, cur_amax, dynamic_range, numel]
)";

Tensor shard(int rank, float base) {
  return Tensor::of<float>({base + static_cast<float>(rank) * 10, base + static_cast<float>(rank) * 10 + 1},
                           {1, 2});
}

TEST(SessionStatistics, ShardsGiveTheNumbersOfTheConcatenation) {
  // {0,1} {10,11}: mean 5.5, sample variance 30.333, from a hand calculation of the four values.
  const auto collected =
      run_sessions({.ranks = 2, .sizes = {.tp = 2}, .yaml = kAllStats}, [](SessionRank& self) {
        const LayerHandle handle = self.session.layer(self.layer("a.fc1"));
        feed(handle, TensorKind::kWeight, shard(self.world.rank(), 0));
        self.session.step();
      });
  for (const int rank : {0, 1}) {
    const auto records = collected->of(rank, "a.fc1", "weight");
    ASSERT_EQ(records.size(), 1U);
    EXPECT_EQ(stat(records[0], "min"), 0);
    EXPECT_EQ(stat(records[0], "max"), 11);
    EXPECT_EQ(stat(records[0], "numel"), 4);
    EXPECT_DOUBLE_EQ(stat(records[0], "mean"), 5.5);
    EXPECT_NEAR(stat(records[0], "std"), std::sqrt(101.0 / 3.0), 1e-12);
    EXPECT_EQ(stat(records[0], "l1_norm"), 22);
    EXPECT_DOUBLE_EQ(stat(records[0], "l2_norm"), std::sqrt(222.0));
    EXPECT_EQ(records[0].layout, Layout::kShard0);
    EXPECT_EQ(records[0].leader, rank == 0);
    EXPECT_THAT(records[0].group, ::testing::ElementsAre(0, 1));
  }
}

TEST(SessionStatistics, ReplicatedTensorsCountOnceOrAsTheReferenceCountsThem) {
  const auto body = [](SessionRank& self) {
    const LayerHandle handle = self.session.layer(self.layer("a.fc1"));
    feed(handle, TensorKind::kActivation, Tensor::of<float>({3, 4}, {1, 2}));
    self.session.step();
  };
  const auto once = run_sessions({.ranks = 4, .sizes = {.tp = 4}, .yaml = kAllStats}, body);
  EXPECT_EQ(stat(once->of(3, "a.fc1", "activation").at(0), "l2_norm"), 5);
  EXPECT_EQ(stat(once->of(3, "a.fc1", "activation").at(0), "numel"), 2);
  const auto te =
      run_sessions({.ranks = 4,
                    .sizes = {.tp = 4},
                    .yaml = kAllStats,
                    .adjust = [](SessionOptions& o, int) { o.replica_counting = ReplicaCounting::kTe; }},
                   body);
  EXPECT_EQ(stat(te->of(3, "a.fc1", "activation").at(0), "l2_norm"), 10);
  EXPECT_EQ(stat(te->of(3, "a.fc1", "activation").at(0), "numel"), 8);
}

TEST(SessionStatistics, DataParallelRanksHoldOtherTokensAndTheSameWeights) {
  // 2 x 2: rank = tp + 2 dp.
  const auto collected =
      run_sessions({.ranks = 4, .sizes = {.tp = 2}, .yaml = kAllStats}, [](SessionRank& self) {
        const LayerHandle handle = self.session.layer(self.layer("a.fc1"));
        const auto tp = static_cast<float>(self.groups.tp().rank());
        const auto dp = static_cast<float>(self.groups.dp().rank());
        feed(handle, TensorKind::kWeight, Tensor::of<float>({tp + 1}, {1, 1}));
        feed(handle, TensorKind::kActivation, Tensor::of<float>({dp + 1}, {1, 1}));
        feed(handle, TensorKind::kGradient, Tensor::of<float>({1 + tp + 10 * dp}, {1, 1}));
        self.session.step();
      });
  const StatRecord weight = collected->of(3, "a.fc1", "weight").at(0);
  EXPECT_EQ(stat(weight, "numel"), 2);
  EXPECT_EQ(stat(weight, "l1_norm"), 3);
  const StatRecord activation = collected->of(3, "a.fc1", "activation").at(0);
  EXPECT_EQ(stat(activation, "numel"), 2);
  EXPECT_EQ(stat(activation, "l1_norm"), 3);
  const StatRecord gradient = collected->of(3, "a.fc1", "gradient").at(0);
  EXPECT_EQ(stat(gradient, "numel"), 4);
  EXPECT_EQ(stat(gradient, "l1_norm"), 1 + 2 + 11 + 12);
}

TEST(SessionStatistics, PartialSumsAreReportedByEachRankForItself) {
  const auto collected =
      run_sessions({.ranks = 2, .sizes = {.tp = 2}, .yaml = kAllStats}, [](SessionRank& self) {
        const LayerHandle handle = self.session.layer(self.layer("a.fc2", ParallelMode::kRow));
        Tensor output = Tensor::of<float>({static_cast<float>(self.world.rank() + 1)}, {1, 1});
        handle.quantizer(TensorKind::kOutput)->process_gemm_output(output, {});
        self.session.step();
      });
  for (const int rank : {0, 1}) {
    const StatRecord record = collected->of(rank, "a.fc2", "output").at(0);
    EXPECT_EQ(stat(record, "max"), rank + 1);
    EXPECT_EQ(record.layout, Layout::kPartial);
    EXPECT_TRUE(record.leader);
    EXPECT_THAT(record.group, ::testing::ElementsAre(rank));
  }
}

TEST(SessionStatistics, AnyNanOnAnyRankShowsWhicheverRankHoldsIt) {
  for (const int holder : {0, 1, 2, 3}) {
    const auto collected =
        run_sessions({.ranks = 4, .sizes = {.tp = 4}, .yaml = kAllStats}, [&](SessionRank& self) {
          const LayerHandle handle = self.session.layer(self.layer("a.fc1"));
          Tensor weight = Tensor::of<float>({1, -2}, {1, 2});
          if (self.world.rank() == holder) weight.values<float>()[0] = std::nanf("");
          feed(handle, TensorKind::kWeight, weight);
          self.session.step();
        });
    const StatRecord record = collected->of(0, "a.fc1", "weight").at(0);
    EXPECT_TRUE(std::isnan(stat(record, "min")));
    EXPECT_TRUE(std::isnan(stat(record, "max")));
    EXPECT_TRUE(std::isnan(stat(record, "cur_amax")));
    EXPECT_EQ(stat(record, "min_finite"), -2);
    EXPECT_EQ(stat(record, "max_finite"), 1);
  }
}

TEST(SessionStatistics, EmptyShardsJoinAndARankThatSkipsALayerHangsNobody) {
  const auto collected =
      run_sessions({.ranks = 2, .sizes = {.tp = 2}, .yaml = kAllStats}, [](SessionRank& self) {
        const LayerHandle empty = self.session.layer(self.layer("a.fc1"));
        const LayerHandle skipped = self.session.layer(self.layer("b.fc1"));
        const LayerHandle unused = self.session.layer(self.layer("c.fc1"));
        static_cast<void>(unused);
        if (self.world.rank() == 0) {
          feed(empty, TensorKind::kWeight, TensorView(nullptr, DType::kF32, {0, 8}));
          feed(skipped, TensorKind::kWeight, Tensor::of<float>({7}, {1, 1}));
        } else {
          feed(empty, TensorKind::kWeight, Tensor::of<float>({-3, 2}, {1, 2}));
        }
        self.session.step();
      });
  const StatRecord record = collected->of(1, "a.fc1", "weight").at(0);
  EXPECT_EQ(stat(record, "min"), -3);
  EXPECT_EQ(stat(record, "max"), 2);
  EXPECT_EQ(stat(record, "numel"), 2);
  EXPECT_EQ(stat(record, "mean"), -0.5);
  EXPECT_EQ(stat(collected->of(1, "b.fc1", "weight").at(0), "max"), 7);
  EXPECT_TRUE(collected->of(0, "c.fc1", "weight").empty());
}

TEST(SessionStatistics, MicrobatchesAddUpWeightsCountOnceAndPhasesStayApart) {
  const auto collected = run_sessions({.yaml = kAllStats}, [](SessionRank& self) {
    const LayerHandle handle = self.session.layer(self.layer("a.fc1"));
    for (int microbatch = 0; microbatch < 3; ++microbatch) {
      const auto value = static_cast<float>(microbatch + 1);
      feed(handle, TensorKind::kActivation, Tensor::of<float>({value}, {1, 1}),
           {Phase::kForward, microbatch});
      feed(handle, TensorKind::kActivation, Tensor::of<float>({500}, {1, 1}),
           {Phase::kRecompute, microbatch});
      feed(handle, TensorKind::kWeight, Tensor::of<float>({5}, {1, 1}), {Phase::kForward, microbatch});
    }
    feed(handle, TensorKind::kActivation, Tensor::of<float>({1000}, {1, 1}), {Phase::kEval, 0});
    self.session.step();
  });
  const auto records = collected->of(0, "a.fc1", "activation");
  ASSERT_EQ(records.size(), 2U);
  EXPECT_EQ(records[0].phase, Phase::kForward);
  EXPECT_EQ(stat(records[0], "cur_amax"), 3);
  EXPECT_EQ(stat(records[0], "numel"), 3);
  EXPECT_EQ(stat(records[0], "mean"), 2);
  EXPECT_EQ(stat(records[0], "std"), 1);
  EXPECT_EQ(records[1].phase, Phase::kEval);
  EXPECT_EQ(stat(records[1], "cur_amax"), 1000);
  EXPECT_EQ(stat(collected->of(0, "a.fc1", "weight").at(0), "numel"), 1);
}

TEST(SessionStatistics, ObservedAndFreelyNamedTensorsAreReported) {
  constexpr const char* kYaml = R"(
seen:
  enabled: true
  observe: decoder\..*
  transformer_engine:
    LogTensorStats: {enabled: true, stats: [max, numel]}
own:
  enabled: true
  layers: {layer_types: [conv]}
  LogTensorStats: {enabled: true, tensors: [image], stats: [max, mean]}
)";
  const auto collected = run_sessions({.ranks = 2, .sizes = {.tp = 2}, .yaml = kYaml}, [](SessionRank& self) {
    const float rank = static_cast<float>(self.world.rank());
    const Tensor own = Tensor::of<float>({rank}, {1, 1});
    for (int step = 0; step < 2; ++step) {
      self.session.observe("decoder.layers.1", "residual", Tensor::of<float>({7, 8}, {1, 2}),
                           Layout::kReplicated);
      self.session.observe("other", "residual", own, Layout::kReplicated);
      self.session.log_tensor_stats("conv1", "image", own, &self.world);
      self.session.log_tensor_stats("conv2", "image", own);
      self.session.log_tensor_stats("conv1", "mask", own);
      self.session.step();
    }
  });
  EXPECT_EQ(collected->of(0, "decoder.layers.1", "residual").size(), 2U);
  EXPECT_EQ(stat(collected->of(0, "decoder.layers.1", "residual").at(0), "numel"), 2);
  EXPECT_TRUE(collected->of(0, "other", "residual").empty());
  EXPECT_EQ(stat(collected->of(0, "conv1", "image").at(1), "max"), 1) << "reduced over the given group";
  EXPECT_EQ(stat(collected->of(0, "conv2", "image").at(1), "max"), 0) << "never reduced without a group";
  EXPECT_EQ(stat(collected->of(1, "conv2", "image").at(1), "max"), 1);
  EXPECT_TRUE(collected->of(0, "conv1", "mask").empty());
}

TEST(SessionStatistics, ScalarsOfTheWorldsFirstRankAreWritten) {
  const auto collected =
      run_sessions({.ranks = 2, .sizes = {.tp = 2}, .yaml = kAllStats}, [](SessionRank& self) {
        self.session.scalar("loss", 2.5);
        self.session.step();
        self.session.step();
        self.session.scalar("loss", 2.25);
        self.session.step();
      });
  EXPECT_EQ(collected->scalars[0].size(), 2U);
  EXPECT_EQ(collected->scalars[0][0]["loss"], 2.5);
  EXPECT_EQ(collected->scalars[0][2]["loss"], 2.25);
  EXPECT_TRUE(collected->scalars[1].empty());
}

}  // namespace
}  // namespace amaxscope::testing
