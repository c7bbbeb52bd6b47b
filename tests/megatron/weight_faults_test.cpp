// Planted faults of a cached weight: stale as a whole, stale or overwritten in its columnwise copy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/error.hpp"
#include "megatron/faults.hpp"
#include "megatron/layers/linear.hpp"
#include "megatron/model_support.hpp"
#include "megatron/recorder.hpp"

namespace amaxscope::megatron {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::names;
using testing::Seen;
using testing::to_doubles;

struct Use {
  double y = 0;   ///< what the rowwise copy stands for, over 448
  double dx = 0;  ///< what the columnwise copy stands for, over 448
};

// The amaxes of E4M3 and E5M2: with a power of two they make scales that decode exactly.
constexpr float kE4m3 = 448.0F;
constexpr float kE5m2 = 57344.0F;

/// A 1 x 1 layer under current scaling whose weight is 1, 2, 4, ... times 448 in iterations 0, 1, 2, ...; two
/// micro-batches each.
class FaultyWeight {
 public:
  explicit FaultyWeight(const std::string& fault, DebugSession* session = nullptr, int rank = 0,
                        RecipeKind recipe = RecipeKind::kCurrent, bool fp8_weights = false)
      : table_({parse_fault(fault)}, rank), session_(session) {
    LayerContext context;
    context.recipe = recipe;
    context.faults = &table_;
    context.session = session;
    context.fp8_weights = fp8_weights;
    layer_ = std::make_unique<ColumnParallelLinear>(
        context, LinearOptions{.name = "fc", .number = 1, .inputs = 1, .outputs = 1, .bias = false});
  }

  std::vector<Use> iteration() {
    table_.begin_iteration(iteration_);
    layer_->weight().master.values<float>()[0] = std::ldexp(kE4m3, static_cast<int>(iteration_));
    layer_->weight().refresh_compute();
    std::vector<Use> uses;
    for (const int microbatch : {0, 1}) {
      Linear::Saved saved;
      const Tensor y = layer_->forward(Tensor::of<float>({kE4m3}, {1, 1}),
                                       {.phase = Phase::kForward, .microbatch = microbatch}, &saved);
      const Tensor dx = layer_->backward(Tensor::of<float>({kE5m2}, {1, 1}).view(),
                                         {.phase = Phase::kBackward, .microbatch = microbatch}, saved);
      uses.push_back({to_doubles(y.view())[0] / kE4m3 / kE4m3, to_doubles(dx.view())[0] / kE5m2 / kE4m3});
    }
    ++iteration_;
    if (session_ != nullptr) session_->step();
    return uses;
  }
  void evaluate() {
    table_.begin_iteration(iteration_);
    std::ignore = layer_->forward(Tensor::of<float>({1.0F}, {1, 1}), {.phase = Phase::kEval}, nullptr);
  }

 private:
  FaultTable table_;
  DebugSession* session_;
  std::unique_ptr<ColumnParallelLinear> layer_;
  std::int64_t iteration_ = 0;
};

std::vector<double> forwards(const std::vector<Use>& uses) { return {uses[0].y, uses[1].y}; }
std::vector<double> backwards(const std::vector<Use>& uses) { return {uses[0].dx, uses[1].dx}; }

TEST(StaleWeight, IsTheOneOfTheIterationBefore) {
  for (const bool fp8_weights : {false, true}) {
    FaultyWeight layer("stale_weight@layer=fc,iteration=2", nullptr, 0, RecipeKind::kCurrent, fp8_weights);
    EXPECT_THAT(forwards(layer.iteration()), Each(1.0));
    EXPECT_THAT(forwards(layer.iteration()), Each(2.0));
    for (int i = 0; i < 3; ++i) {
      const std::vector<Use> uses = layer.iteration();
      EXPECT_THAT(forwards(uses), Each(2.0)) << "and so on";
      EXPECT_THAT(backwards(uses), Each(2.0));
    }
  }
}

TEST(StaleWeight, OfLaterMicroBatchesOnly) {
  FaultyWeight layer("stale_weight@layer=fc,iteration=1,microbatch=1");
  layer.iteration();
  const std::vector<Use> uses = layer.iteration();
  EXPECT_THAT(forwards(uses), ElementsAre(2.0, 1.0));
  EXPECT_THAT(backwards(uses), ElementsAre(2.0, 1.0));
}

TEST(StaleWeight, EvaluationsDoNotCountAsIterations) {
  FaultyWeight layer("stale_weight@layer=fc");
  layer.evaluate();
  EXPECT_THAT(forwards(layer.iteration()), Each(1.0)) << "there is nothing older yet";
  layer.evaluate();
  EXPECT_THAT(forwards(layer.iteration()), Each(1.0));
}

TEST(StaleWeight, OtherRanksAndLayersAreSound) {
  FaultyWeight elsewhere("stale_weight@layer=fc,rank=1");
  elsewhere.iteration();
  EXPECT_THAT(forwards(elsewhere.iteration()), Each(2.0));
  FaultyWeight other("stale_weight@layer=fc2");
  other.iteration();
  EXPECT_THAT(forwards(other.iteration()), Each(2.0));
}

TEST(StaleColumnwise, ReachesDgradOnly) {
  FaultyWeight layer("stale_columnwise@layer=fc,iteration=1");
  layer.iteration();
  for (const double fresh : {2.0, 4.0}) {
    const std::vector<Use> uses = layer.iteration();
    EXPECT_THAT(forwards(uses), Each(fresh));
    EXPECT_THAT(backwards(uses), Each(1.0));
  }
}

TEST(OverwrittenColumnwise, IsNanInItsIterationAndRankOnly) {
  FaultyWeight layer("overwrite_columnwise@layer=fc,rank=3,iteration=1", nullptr, 3);
  FaultyWeight elsewhere("overwrite_columnwise@layer=fc,rank=3,iteration=1", nullptr, 0);
  for (const std::int64_t iteration : {0, 1, 2}) {
    for (const Use& use : layer.iteration()) {
      EXPECT_EQ(use.y, std::ldexp(1.0, static_cast<int>(iteration)));
      EXPECT_EQ(std::isnan(use.dx), iteration == 1) << iteration;
    }
    EXPECT_THAT(backwards(elsewhere.iteration()), Each(std::ldexp(1.0, static_cast<int>(iteration))));
  }
}

TEST(OverwrittenColumnwise, NeedsARecipe) {
  try {
    FaultyWeight("overwrite_columnwise@layer=fc", nullptr, 0, RecipeKind::kNone);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("weight of fc is not quantized by a recipe"));
  }
}

TEST(WeightFaults, TheDebugRuntimeIsShownWhatIsUsed) {
  std::vector<Seen> seen;
  std::vector<Seen> reused;
  const FeatureRegistry registry = testing::with_recorder(seen, &reused);
  DebugSession session(registry, {}, testing::session_options(testing::kRecordAll));
  FaultyWeight layer("stale_columnwise@layer=fc,iteration=2", &session);
  layer.iteration();
  layer.iteration();  // nothing is due in iteration 1: the copy that goes stale is of the plain path
  reused.clear();
  EXPECT_THAT(backwards(layer.iteration()), Each(2.0));
  ASSERT_EQ(reused.size(), 4U) << "as it was replaced, in backward, in the second forward and backward";
  for (const Seen& use : reused) {
    EXPECT_THAT(use.values, Each(4.0 * kE4m3));
    EXPECT_THAT(use.rowwise, Each(4.0 * kE4m3));
    EXPECT_THAT(use.columnwise, Each(2.0 * kE4m3));
  }
  session.close();
}

TEST(WeightFaults, AStaleWeightIsNotQuantizedAgain) {
  std::vector<Seen> seen;
  std::vector<Seen> reused;
  const FeatureRegistry registry = testing::with_recorder(seen, &reused);
  DebugSession session(registry, {}, testing::session_options(testing::kRecordAll));
  FaultyWeight layer("stale_weight@layer=fc,iteration=2", &session);
  layer.iteration();
  layer.iteration();
  seen.clear();
  reused.clear();
  EXPECT_THAT(forwards(layer.iteration()), Each(2.0)) << "observing does not mend it";
  for (const Seen& one : seen) EXPECT_THAT(one.what, ::testing::Not(HasSubstr("weight")));
  ASSERT_EQ(reused.size(), 4U);
  EXPECT_THAT(reused[0].values, Each(4.0 * kE4m3));
  EXPECT_THAT(reused[0].rowwise, Each(2.0 * kE4m3));
  EXPECT_THAT(reused[0].columnwise, Each(2.0 * kE4m3));
  session.close();
}

}  // namespace
}  // namespace amaxscope::megatron
