// The same model on 1, 2 and 4 ranks, with and without sequence parallelism, in one and four micro-batches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/loopback_communicator.hpp"
#include "core/error.hpp"
#include "megatron/model_support.hpp"

namespace amaxscope::megatron {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::joined;
using testing::ModelRun;
using testing::random_batch;
using testing::relative_distance;
using testing::run_model;
using testing::run_model_on;
using testing::RunOptions;

struct Case {
  int tp;
  bool sequence_parallel;
};

class TensorParallel : public ::testing::TestWithParam<Case> {
 protected:
  static std::vector<Batch> micro_batches() {
    std::vector<Batch> batches;
    for (std::uint64_t i = 0; i < 4; ++i) batches.push_back(random_batch(20 + i, 16, 64));
    return batches;
  }
  RunOptions options(DType dtype) const {
    RunOptions options;
    options.context.dtype = dtype;
    options.context.seed = 11;
    options.context.sequence_parallel = GetParam().sequence_parallel;
    return options;
  }
};

void expect_close(const ModelRun& run, const ModelRun& expected, double tolerance) {
  EXPECT_NEAR(run.loss, expected.loss, tolerance * expected.loss);
  ASSERT_EQ(run.gradients.size(), expected.gradients.size());
  for (const auto& [name, gradient] : expected.gradients) {
    EXPECT_LT(relative_distance(run.gradients.at(name), gradient), tolerance) << name;
  }
}

TEST_P(TensorParallel, EqualsOneRankInF64) {
  const std::vector<Batch> batches = {joined(micro_batches(), 8)};
  const ModelRun expected = run_model(options(DType::kF64), nullptr, batches);
  expect_close(run_model_on(GetParam().tp, options(DType::kF64), batches), expected, 1e-12);
}

/// SwiGLU, rotary positions, normed queries and keys, layers that are run again.
RunOptions modern(RunOptions options) {
  options.model.mlp = MlpKind::kSwiglu;
  options.model.norm.kind = NormKind::kRmsNorm;
  options.model.rotary_positions = true;
  options.model.qk_norm = true;
  options.model.recompute = true;
  return options;
}

TEST_P(TensorParallel, ModernModelEqualsOneRankInF64) {
  const std::vector<Batch> batches = {joined(micro_batches(), 8)};
  const ModelRun expected = run_model(modern(options(DType::kF64)), nullptr, batches);
  ASSERT_TRUE(expected.gradients.contains("decoder.layers.1.self_attention.q_layernorm.weight"));
  ASSERT_FALSE(expected.gradients.contains("embedding.position_embeddings.weight"));
  expect_close(run_model_on(GetParam().tp, modern(options(DType::kF64)), batches), expected, 1e-12);
}

TEST_P(TensorParallel, ExpertsEqualOneRankInF64) {
  const std::vector<Batch> batches = {joined(micro_batches(), 8)};
  RunOptions moe = options(DType::kF64);
  moe.model.experts = 3;
  moe.model.top_k = 2;
  const ModelRun expected = run_model(moe, nullptr, batches);
  ASSERT_TRUE(expected.gradients.contains("decoder.layers.2.mlp.experts.linear_fc2.gemm_2.weight"));
  ASSERT_TRUE(expected.gradients.contains("decoder.layers.2.mlp.router.weight"));
  expect_close(run_model_on(GetParam().tp, moe, batches), expected, 1e-12);
}

TEST_P(TensorParallel, FourMicroBatchesEqualOneInF64) {
  const ModelRun expected =
      run_model(options(DType::kF64), nullptr, std::vector<Batch>{joined(micro_batches(), 8)});
  expect_close(run_model_on(GetParam().tp, options(DType::kF64), micro_batches()), expected, 1e-12);
}

// fp32 has a unit roundoff of 6e-8; sums of up to 128 products over two layers, forward and backward, lose a
// few dozen of them relative to the largest gradient of a tensor.
TEST_P(TensorParallel, EqualsOneRankInF32) {
  const std::vector<Batch> batches = micro_batches();
  const ModelRun expected = run_model(options(DType::kF64), nullptr, batches);
  expect_close(run_model(options(DType::kF32), nullptr, batches), expected, 1e-5);
  expect_close(run_model_on(GetParam().tp, options(DType::kF32), batches), expected, 1e-5);
}

// bf16 rounds each tensor to 8 bits.
TEST_P(TensorParallel, EqualsOneRankInBf16) {
  const std::vector<Batch> batches = micro_batches();
  const ModelRun expected = run_model(options(DType::kF64), nullptr, batches);
  expect_close(run_model_on(GetParam().tp, options(DType::kBF16), batches), expected, 0.1);
}

TEST_P(TensorParallel, RecipesTrainCloseToHighPrecision) {
  const std::vector<Batch> batches = micro_batches();
  const ModelRun expected = run_model(options(DType::kF32), nullptr, batches);
  for (const RecipeKind recipe : {RecipeKind::kCurrent, RecipeKind::kDelayed}) {
    RunOptions fp8 = options(DType::kF32);
    fp8.context.recipe = recipe;
    // Delayed scaling starts at scale 1, at which gradients of a mean loss would be flushed to zero.
    fp8.gradient_scale = 1024;
    ModelRun run = run_model_on(GetParam().tp, fp8, batches);
    EXPECT_NEAR(run.loss, expected.loss, 0.02 * expected.loss) << to_string(recipe);
    for (auto& [name, gradient] : run.gradients) {
      for (double& value : gradient) value /= 1024;
      // E5M2 gradients have two mantissa bits: an error of an eighth in each.
      EXPECT_LT(relative_distance(gradient, expected.gradients.at(name)), 0.3)
          << to_string(recipe) << " " << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, TensorParallel,
                         ::testing::Values(Case{1, false}, Case{1, true}, Case{2, false}, Case{2, true},
                                           Case{4, false}, Case{4, true}),
                         [](const auto& param) {
                           return "Tp" + std::to_string(param.param.tp) +
                                  (param.param.sequence_parallel ? "Sequence" : "");
                         });

std::string error_of(int ranks, const GptOptions& model, bool sequence_parallel = false) {
  try {
    RunOptions options;
    options.model = model;
    options.context.sequence_parallel = sequence_parallel;
    run_loopback_ranks(
        ranks, [&](Communicator& tp) { std::ignore = run_model(options, &tp, std::vector<Batch>{}); });
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    return error.what();
  }
  return "";
}

TEST(ModelSizes, IndivisibleOnesAreNamedWithTp) {
  GptOptions model = testing::small_model();
  model.heads = 1;
  EXPECT_THAT(error_of(2, model), AllOf(HasSubstr("heads 1"), HasSubstr("2")));
  model = testing::small_model();
  model.vocabulary = 63;
  EXPECT_THAT(error_of(2, model), AllOf(HasSubstr("vocabulary 63"), HasSubstr("2")));
  model = testing::small_model();
  model.ffn_hidden = 33;
  EXPECT_THAT(error_of(2, model), HasSubstr("ffn_hidden 33"));
  model = testing::small_model();
  model.sequence = 9;
  EXPECT_THAT(error_of(2, model, true), HasSubstr("sequence 9"));
  EXPECT_EQ(error_of(2, model, false), "") << "the sequence is split under sequence parallelism only";
  model = testing::small_model();
  model.hidden = 30;
  EXPECT_THAT(error_of(2, model), HasSubstr("hidden 30 is not divisible by heads 4"));
  model = testing::small_model();
  model.experts = 2;
  model.top_k = 3;
  EXPECT_THAT(error_of(1, model), HasSubstr("top_k 3 of 2 experts"));
  model = testing::small_model();
  model.layers = 0;
  EXPECT_THAT(error_of(1, model), HasSubstr("layers is 0"));
}

TEST(ModelSizes, RecipesAndExactGemmsNeedABelowF64Dtype) {
  LayerContext context;
  context.dtype = DType::kF64;
  context.recipe = RecipeKind::kCurrent;
  EXPECT_THROW(Gpt(context, testing::small_model()), Error);
  context.recipe = RecipeKind::kNone;
  EXPECT_NO_THROW(Gpt(context, testing::small_model()));
  context.arithmetic = GemmArithmetic::kExact;
  EXPECT_THROW(Gpt(context, testing::small_model()), Error);
}

}  // namespace
}  // namespace amaxscope::megatron
