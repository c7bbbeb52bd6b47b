// NonFiniteGuard names the first NaN or Inf of the job and what came before it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "core/error.hpp"
#include "runtime/quantizers/current_scaling.hpp"
#include "runtime/storage/safetensors.hpp"
#include "tests/runtime/session/session_fixture.hpp"

namespace amaxscope::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::string yaml(const std::string& keys = "") {
  return "all: {enabled: true, layers: {layer_types: [all]}, observe: '.', transformer_engine: "
         "{NonFiniteGuard: "
         "{enabled: true, tensors: [activation, weight, gradient, output]" +
         keys + "}}}";
}

Tensor ones(std::int64_t rows, std::int64_t cols) {
  Tensor x(DType::kF32, {rows, cols});
  std::ranges::fill(x.values<float>(), 1.0F);
  return x;
}

std::vector<Finding> findings_of(const Collected& collected) {
  std::vector<Finding> all;
  for (const auto& [rank, findings] : collected.findings)
    all.insert(all.end(), findings.begin(), findings.end());
  return all;
}

TEST(NonFiniteGuard, TheEarliestInTheProgramIsReportedAndNotThoseThatCaughtIt) {
  const auto collected =
      run_sessions({.ranks = 2, .sizes = {.tp = 2}, .yaml = yaml()}, [](SessionRank& rank) {
        const LayerHandle first = rank.session.layer(rank.layer("decoder.1.fc1"));
        const LayerHandle second = rank.session.layer(rank.layer("decoder.2.fc1"));
        for (int step = 0; step < 4; ++step) {
          Tensor weight = ones(4, 8);
          Tensor later = ones(4, 8);
          if (step == 2 && rank.world.rank() == 1) weight.values<float>()[13] = kNaN;
          // Rank 0 catches it in the layer behind, more of it.
          if (step >= 2) std::ranges::fill(later.values<float>(), kNaN);
          feed(first, TensorKind::kActivation, ones(4, 8));
          feed(first, TensorKind::kWeight, weight);
          feed(second, TensorKind::kActivation, later);
          rank.session.step();
        }
      });
  const auto findings = findings_of(*collected);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].check, "first non-finite");
  EXPECT_EQ(findings[0].iteration, 2);
  EXPECT_EQ(findings[0].layer, "decoder.1.fc1");
  EXPECT_EQ(findings[0].tensor, "weight");
  EXPECT_THAT(findings[0].ranks, ElementsAre(1));
  EXPECT_EQ(findings[0].details.at("index"), "13");
  EXPECT_THAT(findings[0].what,
              AllOf(HasSubstr("first NaN is element 13"), HasSubstr("1 element is not finite")));
}

TEST(NonFiniteGuard, InfinityIsToldFromNaNAndEvaluationIsLeftAlone) {
  const auto collected = run_sessions({.ranks = 1, .yaml = yaml()}, [](SessionRank& rank) {
    const LayerHandle layer = rank.session.layer(rank.layer("fc1", ParallelMode::kNone));
    Tensor x = ones(2, 2);
    x.values<float>()[1] = kNaN;
    feed(layer, TensorKind::kActivation, x, {Phase::kEval, 0});
    rank.session.step();
    x.values<float>()[1] = -std::numeric_limits<float>::infinity();
    feed(layer, TensorKind::kActivation, x);
    rank.session.step();
  });
  const auto findings = findings_of(*collected);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].iteration, 1);
  EXPECT_EQ(findings[0].details.at("kind"), "Inf");
}

TEST(NonFiniteGuard, CodesAreLookedAtWhereverTheyAreUsed) {
  const auto collected = run_sessions({.ranks = 1, .yaml = yaml()}, [](SessionRank& rank) {
    LayerDescription description = rank.layer("fc1", ParallelMode::kNone);
    description.recipe = RecipeKind::kCurrent;
    const LayerHandle layer =
        rank.session.layer(description, {nullptr,
                                         std::make_shared<Float8CurrentScalingQuantizer>(
                                             DType::kE4M3, CurrentScalingOptions{}, ReduceAmaxes{}),
                                         nullptr});
    const Tensor weight = ones(4, 8);
    DebugQuantizer* debug = layer.quantizer(TensorKind::kWeight);
    const auto operand = debug->quantize(weight, {true, true}, {});
    // Something writes to the columnwise copy between forward and backward.
    auto& codes =
        dynamic_cast<Float8Tensor&>(*dynamic_cast<DebugQuantizedTensor&>(*operand).get_tensor(true));
    Tensor overwritten = codes.codes(Direction::kColumnwise).clone();
    overwritten.values<std::uint8_t>()[5] = 0x7F;
    codes.assign(codes.codes(Direction::kRowwise).clone(), std::move(overwritten), codes.scale(),
                 codes.scale_inv());
    debug->inspect_reuse(weight, *operand, {Phase::kBackward, 0});
    rank.session.step();
  });
  const auto findings = findings_of(*collected);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].tensor, "weight");
  EXPECT_EQ(findings[0].phase, Phase::kBackward);
  EXPECT_THAT(findings[0].what,
              AllOf(HasSubstr("the tensor is finite, its columnwise codes are not"), HasSubstr("element 5")));
}

TEST(NonFiniteGuard, StopEndsTheRunOnAllRanksAfterThatStep) {
  run_sessions({.ranks = 2, .sizes = {.tp = 2}, .yaml = yaml(", action: stop")}, [](SessionRank& rank) {
    const LayerHandle layer = rank.session.layer(rank.layer("fc1"));
    feed(layer, TensorKind::kActivation, ones(2, 2));
    rank.session.step();
    Tensor x = ones(2, 2);
    if (rank.world.rank() == 1) x.values<float>()[0] = kNaN;
    feed(layer, TensorKind::kActivation, x);
    try {
      rank.session.step();
      ADD_FAILURE() << "rank " << rank.world.rank() << " goes on";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kStopped);
      EXPECT_THAT(error.what(),
                  AllOf(HasSubstr("NonFiniteGuard"), HasSubstr("activation of fc1"), HasSubstr("rank 1")));
    }
  });
}

TEST(NonFiniteGuard, DumpWritesTheTensorAndTheLogListsWhatCameBefore) {
  const std::filesystem::path dir = std::filesystem::path(::testing::TempDir()) / "nonfinite_dump";
  std::filesystem::remove_all(dir);
  const auto collected =
      run_sessions({.ranks = 1,
                    .yaml = yaml(", action: dump, last: 2"),
                    .adjust = [&](SessionOptions& options, int) { options.log_dir = dir; }},
                   [](SessionRank& rank) {
                     const LayerHandle layer = rank.session.layer(rank.layer("fc1", ParallelMode::kNone));
                     for (int i = 0; i < 5; ++i) {
                       Tensor x = ones(1, 2);
                       x.values<float>()[0] = static_cast<float>(i + 1);
                       feed(layer, TensorKind::kActivation, x, {Phase::kForward, i});
                     }
                     Tensor x = ones(1, 2);
                     x.values<float>()[1] = kNaN;
                     feed(layer, TensorKind::kGradient, x, {Phase::kBackward, 0});
                     rank.session.step();
                   });
  const SafetensorsFile file(dir / "nonfinite" / "rank_0_iteration_000000.safetensors");
  EXPECT_EQ(file.metadata().at("tensor"), "gradient");
  const Tensor dumped = file.read(file.at("high_precision"));
  EXPECT_EQ(dumped.values<float>()[0], 1.0F);
  EXPECT_TRUE(std::isnan(dumped.values<float>()[1]));
  std::stringstream log;
  log << std::ifstream(dir / "nvdlfw_inspect_logs" / "nvdlfw_inspect_globalrank-0.log").rdbuf();
  EXPECT_THAT(log.str(), AllOf(HasSubstr("the last 2 tensors before it"),
                               HasSubstr("micro-batch 4: fc1 activation, amax 5"),
                               HasSubstr("micro-batch 3: fc1 activation, amax 4")));
  EXPECT_THAT(log.str(), ::testing::Not(HasSubstr("micro-batch 2: fc1 activation")));
}

}  // namespace
}  // namespace amaxscope::testing
