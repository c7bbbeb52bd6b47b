// Training in pipeline stages has the bits of training in one: losses, gradient norms, weights.
#include "megatron/pipeline.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>

#include "collectives/loopback_communicator.hpp"
#include "collectives/process_groups.hpp"
#include "core/error.hpp"
#include "megatron/model_support.hpp"
#include "megatron/planted_faults.hpp"
#include "megatron/trainer.hpp"

namespace amaxscope::megatron {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::random_batch;

constexpr std::int64_t kSteps = 3;
constexpr std::string_view kTable = "embedding.word_embeddings.weight";
constexpr std::string_view kCopy = "output_layer.weight";

TrainerOptions options(RecipeKind recipe = RecipeKind::kDelayed) {
  TrainerOptions options;
  options.model = testing::small_model();
  options.model.layers = 4;
  options.recipe = recipe;
  options.arithmetic = GemmArithmetic::kExact;
  options.micro_batches = 3;
  options.clip_norm = 0.05;
  options.learning_rate = {.peak = 3e-3};
  options.seed = 5;
  options.eval_every = 2;
  return options;
}

BatchSource batches(int dp_rank, int salt = 0) {
  return [dp_rank, salt](std::int64_t iteration, int microbatch) {
    return random_batch(static_cast<std::uint64_t>(1000 * salt + iteration * 100 + microbatch * 10 + dp_rank),
                        32, 64);
  };
}

/// What a training comes to: equal between runs exactly when all bits are.
struct Outcome {
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<double> evaluations;
  /// (name, tensor-parallel rank) -> values.
  std::map<std::pair<std::string, int>, std::vector<double>> weights;
};

/// NaN equals NaN here.
std::vector<std::uint64_t> bits(const std::vector<double>& values) {
  std::vector<std::uint64_t> result;
  for (const double value : values) result.push_back(std::bit_cast<std::uint64_t>(value));
  return result;
}

TrainerGroups groups_of(Communicator& world, const ProcessGroups& groups) {
  return {.world = &world,
          .tp = &groups.tp(),
          .dp = &groups.dp(),
          .amax = &groups.tp_dp_cp(),
          .pp = &groups.pp()};
}

/// Every rank's loss and norm are compared; replicas over dp, and the tied weight's copy, as well.
Outcome train(const TrainerOptions& with, int ranks, const ParallelSizes& sizes, std::int64_t steps = kSteps,
              const fs::path& load = {}, const fs::path& save = {}) {
  Outcome outcome;
  std::mutex mutex;
  run_loopback_ranks(ranks, [&](Communicator& world) {
    const ProcessGroups groups(world, sizes);
    Trainer trainer(with, groups_of(world, groups), nullptr);
    if (!load.empty()) trainer.load_state(load);
    trainer.set_evaluation(batches(groups.dp().rank(), 7), 2);
    Outcome own;
    trainer.run(steps, batches(groups.dp().rank()), [&](const StepReport& report) {
      own.losses.push_back(report.loss);
      own.norms.push_back(report.gradient_norm);
      if (report.evaluation_loss) own.evaluations.push_back(*report.evaluation_loss);
    });
    if (!save.empty()) trainer.save_state(save);
    const std::scoped_lock lock(mutex);
    if (outcome.losses.empty()) {
      outcome.losses = own.losses;
      outcome.norms = own.norms;
      outcome.evaluations = own.evaluations;
    }
    EXPECT_EQ(bits(own.losses), bits(outcome.losses)) << "on rank " << world.rank();
    EXPECT_EQ(bits(own.norms), bits(outcome.norms)) << "on rank " << world.rank();
    EXPECT_EQ(own.evaluations, outcome.evaluations) << "on rank " << world.rank();
    for (const Parameter* const parameter : trainer.model().parameters()) {
      const std::vector<double> values = testing::to_doubles(parameter->master.view());
      const auto [known, fresh] = outcome.weights.try_emplace({parameter->name, groups.tp().rank()}, values);
      EXPECT_EQ(bits(known->second), bits(values)) << parameter->name << " is not the same over dp";
    }
  });
  return outcome;
}

void expect_same(const Outcome& staged, const Outcome& whole) {
  EXPECT_EQ(staged.losses, whole.losses);
  EXPECT_EQ(staged.norms, whole.norms);
  EXPECT_EQ(staged.evaluations, whole.evaluations);
  ASSERT_FALSE(whole.norms.empty());
  EXPECT_GT(whole.norms.front(), options().clip_norm) << "nothing was clipped";
  for (const auto& [key, values] : whole.weights) {
    const auto found = staged.weights.find(key);
    ASSERT_NE(found, staged.weights.end()) << key.first;
    EXPECT_EQ(found->second, values) << key.first;
  }
  for (const auto& [key, values] : staged.weights) {
    const bool copy = key.first == kCopy;
    EXPECT_EQ(values, whole.weights.at({copy ? std::string(kTable) : key.first, key.second})) << key.first;
  }
}

TEST(Pipeline, StagesHaveTheBitsOfOneUnderEveryRecipe) {
  for (const RecipeKind recipe : {RecipeKind::kNone, RecipeKind::kDelayed, RecipeKind::kCurrent,
                                  RecipeKind::kMxfp8, RecipeKind::kBlock, RecipeKind::kNvfp4}) {
    SCOPED_TRACE(to_string(recipe));
    const Outcome whole = train(options(recipe), 1, {});
    const Outcome two = train(options(recipe), 2, {.pp = 2});
    expect_same(two, whole);
    EXPECT_TRUE(two.weights.contains({std::string(kCopy), 0}));
    expect_same(train(options(recipe), 4, {.pp = 4}), whole);
  }
}

TEST(Pipeline, AndWithOrdinaryGemmsAndOtherTypes) {
  TrainerOptions blas = options(RecipeKind::kCurrent);
  blas.arithmetic = GemmArithmetic::kBlas;
  blas.dtype = DType::kBF16;
  expect_same(train(blas, 2, {.pp = 2}), train(blas, 1, {}));
  TrainerOptions f64 = options(RecipeKind::kNone);
  f64.arithmetic = GemmArithmetic::kBlas;
  f64.dtype = DType::kF64;
  expect_same(train(f64, 4, {.pp = 4}), train(f64, 1, {}));
}

TEST(Pipeline, AndWithTensorParallelStages) {
  for (const bool sequence_parallel : {false, true}) {
    SCOPED_TRACE(sequence_parallel);
    TrainerOptions with = options();
    with.sequence_parallel = sequence_parallel;
    expect_same(train(with, 4, {.tp = 2, .pp = 2}), train(with, 2, {.tp = 2}));
  }
}

TEST(Pipeline, AndWithDataParallelStages) {
  expect_same(train(options(), 4, {.pp = 2}), train(options(), 2, {}));
}

TEST(Pipeline, AndWithEveryKindOfLayer) {
  TrainerOptions with = options();
  with.model.recompute = true;
  with.model.mlp = MlpKind::kSwiglu;
  with.model.norm.kind = NormKind::kRmsNorm;
  with.model.rotary_positions = true;
  with.model.qk_norm = true;
  with.fp8_weights = true;
  expect_same(train(with, 2, {.pp = 2}), train(with, 1, {}));
  TrainerOptions experts = options();
  experts.model.experts = 3;
  experts.model.top_k = 2;
  expect_same(train(experts, 4, {.pp = 4}), train(experts, 1, {}));
}

TEST(Pipeline, WithFewerAndMoreMicroBatchesThanStages) {
  for (const int micro_batches : {1, 2, 6}) {
    TrainerOptions with = options();
    with.micro_batches = micro_batches;
    SCOPED_TRACE(micro_batches);
    expect_same(train(with, 4, {.pp = 4}), train(with, 1, {}));
  }
}

/// Passes everything on and counts messages.
class CountedMessages final : public ForwardingGroup {
 public:
  explicit CountedMessages(Communicator& inner) : ForwardingGroup(inner), inner_(inner) {}
  int sent = 0;
  int received = 0;

 protected:
  [[nodiscard]] Communicator& inner() const noexcept override { return inner_; }
  void do_send(const TensorView& in, int to) override {
    ++sent;
    ForwardingGroup::do_send(in, to);
  }
  void do_receive(const MutableTensorView& out, int from) override {
    ++received;
    ForwardingGroup::do_receive(out, from);
  }

 private:
  Communicator& inner_;
};

TEST(Pipeline, MessagesAreAsManyAsComputed) {
  run_loopback_ranks(3, [](Communicator& world) {
    TrainerOptions with = options();
    with.model.layers = 3;
    with.micro_batches = 5;
    CountedMessages pp(world);
    Trainer trainer(with, {.world = &world, .tp = nullptr, .dp = nullptr, .amax = nullptr, .pp = &pp},
                    nullptr);
    trainer.set_evaluation(batches(0, 7), 2);
    trainer.step(batches(0));  // with an evaluation
    const bool middle = world.rank() == 1;
    const int left = world.rank() > 0 ? 1 : 0;
    const int right = world.rank() < 2 ? 1 : 0;
    // Activations and gradients of 5 micro-batches, activations of 2 evaluated ones, the norm's sums down the
    // line; the tied weight's gradient there and back between the ends.
    const int tied = middle ? 0 : 1;
    EXPECT_EQ(pp.sent, 5 * right + 5 * left + 2 * right + right + tied);
    EXPECT_EQ(pp.received, 5 * left + 5 * right + 2 * left + left + tied);
    const int first_step = pp.sent;
    trainer.step(batches(0));
    EXPECT_EQ(pp.sent - first_step, 5 * right + 5 * left + right + tied);
  });
}

TEST(Pipeline, EachStageHasItsLayersUnderTheirNumbers) {
  const auto names = [](const PipelineStage& stage) {
    GptOptions model = testing::small_model();
    model.layers = 4;
    return Gpt::layer_names(model, stage);
  };
  const std::vector<std::string> whole = names({});
  std::vector<std::string> joined;
  for (int index = 0; index < 2; ++index) {
    for (std::string& name : names({index, 2})) joined.push_back(std::move(name));
  }
  EXPECT_EQ(joined, whole);
  EXPECT_EQ(names({1, 2}).front(), "decoder.layers.3.self_attention.linear_qkv");
  EXPECT_EQ(names({0, 2}).back(), "decoder.layers.2.mlp.linear_fc2");
}

TEST(Pipeline, LayersThatDoNotDivideAreRefusedWithBothNumbers) {
  GptOptions model = testing::small_model();
  model.layers = 6;
  try {
    Gpt refused({}, model, {1, 4});
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("layers 6"), HasSubstr("(pp) 4")));
  }
}

TEST(Pipeline, GoingOnFromASavedStateEqualsNotHavingStopped) {
  const fs::path state = fs::temp_directory_path() / fmt::format("amaxscope-pipeline-{}", ::getpid());
  fs::remove_all(state);
  TrainerOptions with = options(RecipeKind::kDelayed);
  with.delayed.history_length = 3;
  const Outcome whole = train(with, 2, {.pp = 2}, 5);
  train(with, 2, {.pp = 2}, 2, {}, state);
  const Outcome rest = train(with, 2, {.pp = 2}, 3, state);
  EXPECT_EQ(rest.losses, std::vector(whole.losses.begin() + 2, whole.losses.end()));
  EXPECT_EQ(rest.weights, whole.weights);
  try {
    train(with, 2, {.tp = 2}, 1, state);
    FAIL() << "a state of two stages was taken for one of two tensor-parallel ranks";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInput);
    EXPECT_THAT(error.what(), HasSubstr("was saved with pp 2, this training has 1"));
  }
  fs::remove_all(state);
}

Outcome with_fault(const std::string& fault) {
  TrainerOptions with = options();
  with.model.layers = 2;
  with.faults = {parse_fault(fault)};
  return train(with, 2, {.pp = 2}, 2);
}

TEST(Pipeline, AFaultMayNameALayerOfAnotherStage) {
  const Outcome sound = with_fault("nan@layer=decoder.layers.2.mlp.linear_fc1,iteration=9");
  EXPECT_FALSE(std::isnan(sound.losses.back()));
  EXPECT_TRUE(std::isnan(with_fault("nan@layer=decoder.layers.2.mlp.linear_fc1,iteration=1").losses.back()));
  EXPECT_TRUE(
      std::isnan(with_fault("nan@layer=decoder.layers.1.mlp.linear_fc1,iteration=1,rank=0").losses.back()));
  const auto refusal = [](const std::string& fault) -> std::string {
    try {
      with_fault(fault);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(refusal("nan@layer=decoder.layers.2.mlp.linear_fc1,rank=0"),
              AllOf(HasSubstr("strikes nothing"), HasSubstr("rank 0"), HasSubstr("stage 0")));
  EXPECT_THAT(refusal("nan@layer=decoder.layers.3.mlp.linear_fc1"), HasSubstr("there is no layer"));
  EXPECT_THAT(refusal("skip_gradient_reduction@parameter=decoder.layers.9.norm"),
              HasSubstr("there is no parameter"));
}

TEST(Pipeline, AGradientFaultStrikesItsStageOnly) {
  TrainerOptions with = options();
  with.model.layers = 2;
  with.sequence_parallel = true;
  with.clip_norm = 0;  // the norm differs over tp as well
  with.eval_every = 0;
  with.faults = {parse_fault("skip_gradient_reduction@parameter=decoder.final_layernorm.weight")};
  std::set<std::string> differing;
  std::mutex mutex;
  run_loopback_ranks(4, [&](Communicator& world) {
    const ProcessGroups groups(world, {.tp = 2, .pp = 2});
    Trainer trainer(with, groups_of(world, groups), nullptr);
    trainer.step(batches(0));
    for (const Parameter* const parameter : trainer.model().parameters()) {
      if (parameter->layout != Layout::kReplicated) continue;
      Tensor both(parameter->master.dtype(), {2, parameter->master.numel()});
      groups.tp().all_gather(parameter->master.view(), both, {Traffic::kDebug, "replicas"});
      const std::span<const float> values = std::as_const(both).values<float>();
      const auto half = values.size() / 2;
      if (std::ranges::equal(values.first(half), values.last(half))) continue;
      const std::scoped_lock lock(mutex);
      differing.insert(parameter->name);
    }
  });
  EXPECT_THAT(differing, ::testing::ElementsAre("decoder.final_layernorm.weight"));
}

}  // namespace
}  // namespace amaxscope::megatron
