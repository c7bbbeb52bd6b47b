// A mixture of experts: an expert without tokens, on one rank and on two, and what the session is shown.
#include "megatron/layers/moe_mlp.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "collectives/loopback_communicator.hpp"
#include "core/error.hpp"
#include "megatron/model_support.hpp"
#include "megatron/recorder.hpp"
#include "megatron/trainer.hpp"
#include "runtime/sinks/file_sinks.hpp"

namespace amaxscope::megatron {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::Not;
using testing::random_batch;
using testing::random_tensor;
using testing::Seen;
using testing::session_options;
using testing::to_doubles;
using testing::with_recorder;

constexpr TensorMoment kForward{.phase = Phase::kForward, .microbatch = 0};
constexpr TensorMoment kBackward{.phase = Phase::kBackward, .microbatch = 0};

constexpr const char* kRecord = R"(
gemms:
  enabled: True
  layers: {layer_name_regex_pattern: .*}
  transformer_engine:
    Recorder: {enabled: True}
    LogTensorStats:
      enabled: True
      tensors: [activation, weight, gradient, output, wgrad, dgrad]
      stats: [min, max, mean, std, l1_norm, l2_norm, cur_amax, dynamic_range]
routers:
  enabled: True
  observe: .*
  transformer_engine:
    Recorder: {enabled: True}
)";

MoeOptions two_experts() {
  MoeOptions options;
  options.mlp = {.name = "mlp", .number = 1, .hidden = 4, .ffn_hidden = 8, .norm = {}};
  options.norm_name = "pre_mlp_layernorm";
  options.experts = 2;
  return options;
}

Parameter& parameter(std::vector<Parameter*>& all, std::string_view name) {
  for (Parameter* const one : all) {
    if (one->name == name) return *one;
  }
  throw std::out_of_range(std::string(name));
}

// A router of zeros finds all experts equal, so every token goes to expert 0.
TEST(Moe, AnIdleExpertTakesPartInEverythingAndChangesNothing) {
  std::vector<std::vector<Seen>> seen(2);
  std::vector<std::vector<StatRecord>> records(2);
  run_loopback_ranks(2, [&](Communicator& tp) {
    const auto rank = static_cast<std::size_t>(tp.rank());
    const FeatureRegistry registry = with_recorder(seen[rank]);
    SessionOptions with = session_options(kRecord);
    with.extra_sinks.push_back(
        make_callback_sink([&](const StatRecord& record) { records[rank].push_back(record); }));
    DebugSession session(registry, {.world = &tp, .tp = &tp, .dp_cp = nullptr, .stage = &tp}, with);
    DelayedScalingState delayed({.history_length = 4}, &tp);
    LayerContext context;
    context.tp = &tp;
    context.recipe = RecipeKind::kDelayed;
    context.delayed = &delayed;
    context.session = &session;
    context.sequence_parallel = true;
    MoeMlp layer(context, two_experts());
    std::vector<Parameter*> parameters;
    layer.collect(parameters);
    initialize_constant(parameter(parameters, "mlp.router.weight"), 0.0);
    const Tensor x = random_tensor(DType::kF32, {3, 4}, 7 + rank);
    MoeMlp::Saved saved;
    const Tensor y = layer.forward(x.view(), kForward, &saved);
    EXPECT_EQ(y.shape(), Shape({3, 4}));
    const Tensor dy = random_tensor(DType::kF32, {3, 4}, 17 + rank);
    EXPECT_EQ(layer.backward(x.view(), dy.view(), kBackward, saved).shape(), Shape({3, 4}));
    EXPECT_THAT(to_doubles(parameter(parameters, "mlp.experts.linear_fc1.gemm_1.weight").gradient.view()),
                Each(0.0));
    EXPECT_THAT(to_doubles(parameter(parameters, "mlp.experts.linear_fc1.gemm_0.weight").gradient.view()),
                Contains(Not(0.0)));
    delayed.update();
    for (std::size_t i = 0; i < delayed.size(); ++i) {
      const DelayedScalingState::Slot& slot = delayed.slot(i);
      const bool idle = slot.name.find("gemm_1") != std::string::npos && !slot.name.ends_with(".weight");
      EXPECT_EQ(slot.history.back() == 0, idle) << slot.name << ": an idle tensor keeps its history";
    }
    session.step();
    EXPECT_FALSE(session.detached());
    session.close();
  });
  for (const std::vector<Seen>& rank : seen) {
    std::map<std::string, const Seen*> by_name;
    for (const Seen& one : rank) by_name[one.what] = &one;
    EXPECT_EQ(by_name.at("mlp.experts.linear_fc1.gemm_0 activation replicated forward 0")->shape,
              Shape({6, 4}));
    EXPECT_EQ(by_name.at("mlp.experts.linear_fc1.gemm_1 activation replicated forward 0")->shape,
              Shape({0, 4}));
    EXPECT_EQ(by_name.at("mlp.experts.linear_fc2.gemm_1 output partial forward 0")->shape, Shape({0, 4}));
    EXPECT_EQ(by_name.at("mlp.experts.linear_fc2.gemm_1 gradient replicated backward 0")->shape,
              Shape({0, 4}));
    EXPECT_EQ(by_name.at("mlp.experts.linear_fc1.gemm_1 wgrad shard0 backward 0")->shape, Shape({4, 4}));
    EXPECT_EQ(by_name.at("mlp.router router_logits replicated forward 0")->values,
              std::vector<double>(12, 0.0));
    EXPECT_EQ(by_name.at("mlp.router.load router_load replicated forward 0")->values,
              (std::vector<double>{6, 0}));
  }
  bool idle_is_recorded = false;
  for (const std::vector<StatRecord>& of_rank : records) {
    for (const StatRecord& record : of_rank) {
      for (const StatValue& stat : record.stats)
        EXPECT_TRUE(std::isfinite(stat.value)) << record.layer << " " << record.tensor << " " << stat.name;
      idle_is_recorded = idle_is_recorded || record.layer == "mlp.experts.linear_fc1.gemm_1";
    }
  }
  EXPECT_TRUE(idle_is_recorded);
}

TEST(Moe, ExpertsDiffer) {
  LayerContext context;
  MoeMlp layer(context, two_experts());
  std::vector<Parameter*> parameters;
  layer.collect(parameters);
  EXPECT_NE(to_doubles(parameter(parameters, "mlp.experts.linear_fc1.gemm_0.weight").master.view()),
            to_doubles(parameter(parameters, "mlp.experts.linear_fc1.gemm_1.weight").master.view()));
}

// With one expert of probability 1 the block is the dense one.
TEST(Moe, OneExpertIsTheDenseBlock) {
  LayerContext context;
  context.seed = 4;
  MoeOptions one = two_experts();
  one.experts = 1;
  MoeMlp layer(context, one);
  LayerNormMlp dense(context, one.mlp);
  std::vector<Parameter*> experts;
  std::vector<Parameter*> expected;
  layer.collect(experts);
  dense.collect(expected);
  for (const std::string gemm : {"linear_fc1", "linear_fc2"}) {
    Parameter& own = parameter(experts, "mlp.experts." + gemm + ".gemm_0.weight");
    own.master = parameter(expected, "mlp." + gemm + ".weight").master.clone();
    own.refresh_compute();
  }
  const Tensor x = random_tensor(DType::kF32, {3, 4}, 7);
  EXPECT_EQ(to_doubles(layer.forward(x.view(), kForward, nullptr).view()),
            to_doubles(dense.forward(x.view(), kForward, nullptr).view()));
}

class MoeTraining : public ::testing::TestWithParam<RecipeKind> {};

TEST_P(MoeTraining, LearnsOnFourRanksWhoseExpertsHaveOtherTokensOverDp) {
  std::vector<double> losses;
  run_loopback_ranks(4, [&](Communicator& world) {
    const ProcessGroups groups(world, {.tp = 2});
    TrainerOptions options;
    options.model = testing::small_model();
    if (GetParam() != RecipeKind::kCurrent) options.model.hidden = 64;  // whole blocks on both ranks
    options.model.experts = 4;
    options.model.top_k = 2;
    options.model.recompute = true;
    options.recipe = GetParam();
    options.sequence_parallel = true;
    options.learning_rate.peak = 3e-3;
    std::vector<Seen> seen;
    const FeatureRegistry registry = with_recorder(seen);
    DebugSession session(registry, SessionGroups::from(groups), session_options(kRecord));
    Trainer trainer(options,
                    {.world = &world, .tp = &groups.tp(), .dp = &groups.dp(), .amax = &groups.tp_dp_cp()},
                    &session);
    const int dp_rank = groups.dp().rank();
    trainer.run(
        20,
        [dp_rank](std::int64_t, int) { return random_batch(static_cast<std::uint64_t>(dp_rank), 32, 64); },
        [&](const StepReport& report) {
          if (world.rank() == 0) losses.push_back(report.loss);
        });
    EXPECT_FALSE(session.detached());
    session.close();
  });
  EXPECT_LT(losses.back(), losses.front() - 0.5);
}

INSTANTIATE_TEST_SUITE_P(Recipes, MoeTraining,
                         ::testing::Values(RecipeKind::kCurrent, RecipeKind::kMxfp8, RecipeKind::kNvfp4),
                         [](const auto& recipe) { return std::string(to_string(recipe.param)); });

/// One gradient after one forward and backward: the result, what goes back, and each expert's weight
/// gradient.
struct GroupedRun {
  std::vector<double> y;
  std::vector<double> dx;
  std::vector<std::vector<double>> weights;
  std::vector<Seen> seen;
};

GroupedRun run_grouped(RecipeKind recipe, const Tensor& x, const Tensor& dy,
                       const std::vector<std::int64_t>& rows) {
  GroupedRun run;
  const FeatureRegistry registry = with_recorder(run.seen);
  run_loopback_ranks(1, [&](Communicator& world) {
    DebugSession session(registry, {.world = &world, .tp = &world, .dp_cp = nullptr, .stage = &world},
                         session_options(kRecord));
    LayerContext context;
    context.recipe = recipe;
    context.session = &session;
    context.seed = 3;
    GroupedLinear layer(context, ParallelMode::kColumn,
                        {.name = "g", .number = 1, .inputs = 64, .outputs = 32, .bias = false},
                        static_cast<int>(rows.size()));
    GroupedLinear::Saved saved;
    run.y = to_doubles(layer.forward(x.view(), rows, kForward, &saved).view());
    run.dx = to_doubles(layer.backward(dy.view(), rows, kBackward, saved).view());
    std::vector<Parameter*> parameters;
    layer.collect(parameters);
    for (const Parameter* one : parameters) run.weights.push_back(to_doubles(one->gradient.view()));
    session.step();
    session.close();
  });
  return run;
}

/// The rows of a matrix of doubles.
std::vector<double> rows_of(const std::vector<double>& matrix, std::int64_t cols, std::int64_t first,
                            std::int64_t count) {
  return {matrix.begin() + first * cols, matrix.begin() + (first + count) * cols};
}

// Rows of zeros that the caller adds and takes away again by hand.
TEST(GroupedLinear, FillsUpTheRowsThatARecipeNeedsAndGivesNoneOfThemBack) {
  for (const RecipeKind recipe : {RecipeKind::kMxfp8, RecipeKind::kNvfp4}) {
    SCOPED_TRACE(to_string(recipe));
    const std::int64_t multiple = recipe == RecipeKind::kMxfp8 ? 32 : 16;
    const Tensor x = random_tensor(DType::kF32, {multiple + 5, 64}, 7);
    const Tensor dy = random_tensor(DType::kF32, {multiple + 5, 32}, 8);
    const GroupedRun cut = run_grouped(recipe, x, dy, {multiple, 0, 5});
    Tensor full_x(DType::kF32, {2 * multiple, 64});
    std::ranges::copy(x.values<float>(), full_x.values<float>().begin());
    Tensor full_dy(DType::kF32, {2 * multiple, 32});
    std::ranges::copy(dy.values<float>(), full_dy.values<float>().begin());
    const GroupedRun full = run_grouped(recipe, full_x, full_dy, {multiple, 0, multiple});
    EXPECT_EQ(cut.y, rows_of(full.y, 32, 0, multiple + 5));
    EXPECT_EQ(cut.dx, rows_of(full.dx, 64, 0, multiple + 5));
    EXPECT_EQ(cut.weights, full.weights);
    EXPECT_THAT(cut.weights[1], Each(0.0)) << "an expert without rows";
    EXPECT_THAT(cut.weights[2], Contains(Not(0.0)));
    std::map<std::string, const Seen*> by_name;
    for (const Seen& one : cut.seen) by_name[one.what] = &one;
    EXPECT_EQ(by_name.at("g.gemm_2 activation replicated forward 0")->shape, Shape({multiple, 64}))
        << "as the GEMM sees it";
    EXPECT_EQ(by_name.at("g.gemm_1 gradient replicated backward 0")->shape, Shape({0, 32}));
  }
}

TEST(GroupedLinear, RefusesRowsThatAreNotTheExperts) {
  GroupedLinear layer(LayerContext{}, ParallelMode::kColumn,
                      {.name = "g", .number = 1, .inputs = 2, .outputs = 2}, 2);
  const Tensor x(DType::kF32, {3, 2});
  EXPECT_THROW(std::ignore = layer.forward(x.view(), std::vector<std::int64_t>{1, 1}, kForward, nullptr),
               Error);
}

}  // namespace
}  // namespace amaxscope::megatron
