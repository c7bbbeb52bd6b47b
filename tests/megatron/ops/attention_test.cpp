#include "megatron/ops/attention.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/error.hpp"
#include "tests/megatron/tensors.hpp"

namespace amaxscope::megatron {
namespace {

using namespace amaxscope::megatron::testing;

std::int64_t tokens_of(const AttentionShape& shape) { return shape.sequence * shape.batch; }
std::int64_t width_of(const AttentionShape& shape) { return shape.heads * shape.head_dim; }

Tensor random_qkv(const AttentionShape& shape, DType dtype, double range = 1.5) {
  return random_tensor(dtype, {tokens_of(shape), 3 * width_of(shape)}, 21, range);
}

Tensor context_of(const AttentionShape& shape, const Tensor& qkv) {
  Tensor context(qkv.dtype(), {tokens_of(shape), width_of(shape)});
  attention_forward(shape, qkv.view(), context);
  return context;
}

Tensor gradient_of(const AttentionShape& shape, const Tensor& qkv, const Tensor& dcontext) {
  Tensor context(qkv.dtype(), {tokens_of(shape), width_of(shape)});
  const Tensor probabilities = attention_forward(shape, qkv.view(), context);
  Tensor dqkv(qkv.dtype(), qkv.shape());
  attention_backward(shape, qkv.view(), probabilities.view(), dcontext.view(), dqkv);
  return dqkv;
}

/// The definition, element by element in double, without any of the layout tricks.
std::vector<double> plain_attention(const AttentionShape& shape, const std::vector<double>& qkv) {
  const auto at = [&](std::int64_t s, std::int64_t b, std::int64_t head, std::int64_t part, std::int64_t d) {
    return qkv[static_cast<std::size_t>((s * shape.batch + b) * 3 * width_of(shape) +
                                        (head * 3 + part) * shape.head_dim + d)];
  };
  std::vector<double> context(static_cast<std::size_t>(tokens_of(shape) * width_of(shape)));
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      for (std::int64_t i = 0; i < shape.sequence; ++i) {
        std::vector<double> weight;
        double sum = 0;
        for (std::int64_t j = 0; j <= i; ++j) {
          double score = 0;
          for (std::int64_t d = 0; d < shape.head_dim; ++d)
            score += at(i, b, head, 0, d) * at(j, b, head, 1, d);
          weight.push_back(std::exp(score / std::sqrt(static_cast<double>(shape.head_dim))));
          sum += weight.back();
        }
        for (std::int64_t d = 0; d < shape.head_dim; ++d) {
          double& out = context[static_cast<std::size_t>((i * shape.batch + b) * width_of(shape) +
                                                         head * shape.head_dim + d)];
          for (std::int64_t j = 0; j <= i; ++j)
            out += weight[static_cast<std::size_t>(j)] / sum * at(j, b, head, 2, d);
        }
      }
    }
  }
  return context;
}

TEST(Attention, HandWorkedTwoTokens) {
  // D = 4, so scores are halved: token 1 scores 2 * ln 3 / 2 = ln 3 with itself and 0 with token 0: weights
  // 1/4, 3/4.
  const AttentionShape shape{.sequence = 2, .batch = 1, .heads = 1, .head_dim = 4};
  Tensor qkv(DType::kF64, {2, 12});
  const auto values = qkv.values<double>();
  values[12 + 0] = 2;              // q of token 1
  values[12 + 4] = std::log(3.0);  // k of token 1
  values[8] = 100;                 // v of token 0
  values[12 + 8] = 200;            // v of token 1
  values[12 + 9] = 4;
  Tensor context(DType::kF64, {2, 4});
  const Tensor probabilities = attention_forward(shape, qkv.view(), context);
  const auto p = to_doubles(probabilities.view());
  EXPECT_EQ(p[0], 1);
  EXPECT_EQ(p[1], 0);  // the future
  EXPECT_NEAR(p[2], 0.25, 1e-15);
  EXPECT_NEAR(p[3], 0.75, 1e-15);
  const auto found = to_doubles(context.view());
  EXPECT_EQ(found[0], 100);
  EXPECT_NEAR(found[4], 175, 1e-12);
  EXPECT_NEAR(found[5], 3, 1e-14);
}

TEST(Attention, AgreesWithTheDefinition) {
  for (const std::int64_t head_dim :
       {1, 3, 4, 6, 9}) {  // below, at and between multiples of the four rows at a time
    const AttentionShape shape{.sequence = 7, .batch = 3, .heads = 2, .head_dim = head_dim};
    const Tensor exact = random_qkv(shape, DType::kF64);
    const auto wanted = plain_attention(shape, to_doubles(exact.view()));
    const auto found = to_doubles(context_of(shape, exact).view());
    const Tensor single = converted(exact.view(), DType::kF32);
    const auto wanted_f32 = plain_attention(shape, to_doubles(single.view()));
    const auto found_f32 = to_doubles(context_of(shape, single).view());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_NEAR(found[i], wanted[i], 1e-14) << i << " of head_dim " << head_dim;
      EXPECT_NEAR(found_f32[i], wanted_f32[i], 2e-6) << i << " of head_dim " << head_dim;
    }
  }
}

TEST(Attention, BackwardAgreesWithFiniteDifferences) {
  for (const std::int64_t head_dim : {1, 5, 8}) {
    const AttentionShape shape{.sequence = 6, .batch = 2, .heads = 2, .head_dim = head_dim};
    Tensor qkv = random_qkv(shape, DType::kF64);
    const Tensor dcontext = random_tensor(DType::kF64, {tokens_of(shape), width_of(shape)}, 22);
    const Tensor dqkv = gradient_of(shape, qkv, dcontext);
    EXPECT_LT(gradient_error(qkv, dqkv, [&] { return weighted_sum(dcontext, context_of(shape, qkv)); }), 1e-6)
        << "head_dim " << head_dim;
  }
}

TEST(Attention, BackwardOfF32IsCloseToF64) {
  const AttentionShape shape{.sequence = 40, .batch = 1, .heads = 2, .head_dim = 16};
  const Tensor qkv = random_qkv(shape, DType::kF32);
  const Tensor dcontext = random_tensor(DType::kF32, {tokens_of(shape), width_of(shape)}, 23);
  const auto found = to_doubles(gradient_of(shape, qkv, dcontext).view());
  const auto wanted = to_doubles(
      gradient_of(shape, converted(qkv.view(), DType::kF64), converted(dcontext.view(), DType::kF64)).view());
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(found[i], wanted[i], 5e-6) << i;
}

TEST(Attention, HeadsDoNotDependOnHowTheyAreSplit) {
  const AttentionShape whole{.sequence = 19, .batch = 2, .heads = 4, .head_dim = 6};
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16}) {
    const Tensor qkv = random_qkv(whole, dtype);
    const Tensor dcontext = random_tensor(dtype, {tokens_of(whole), width_of(whole)}, 24);
    const auto context = bits(context_of(whole, qkv).view());
    const auto dqkv = bits(gradient_of(whole, qkv, dcontext).view());
    for (const std::int64_t ranks : {2, 4}) {
      AttentionShape part = whole;
      part.heads = whole.heads / ranks;
      std::vector<Tensor> contexts;
      std::vector<Tensor> gradients;
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        const std::int64_t width = width_of(part);
        const Tensor own = block(qkv.view(), 0, qkv.rows(), rank * 3 * width, 3 * width);
        contexts.push_back(context_of(part, own));
        gradients.push_back(
            gradient_of(part, own, block(dcontext.view(), 0, dcontext.rows(), rank * width, width)));
      }
      EXPECT_EQ(bits(beside(contexts).view()), context) << to_string(dtype) << " over " << ranks;
      EXPECT_EQ(bits(beside(gradients).view()), dqkv) << to_string(dtype) << " over " << ranks;
    }
  }
}

TEST(Attention, SequencesOfABatchDoNotMeet) {
  const AttentionShape both{.sequence = 9, .batch = 2, .heads = 2, .head_dim = 4};
  const AttentionShape one{.sequence = 9, .batch = 1, .heads = 2, .head_dim = 4};
  const Tensor qkv = random_qkv(both, DType::kF32);
  const Tensor context = context_of(both, qkv);
  for (std::int64_t b = 0; b < 2; ++b) {
    std::vector<Tensor> inputs;
    std::vector<Tensor> outputs;
    for (std::int64_t s = 0; s < 9; ++s) {
      inputs.push_back(block(qkv.view(), 2 * s + b, 1, 0, qkv.cols()));
      outputs.push_back(block(context.view(), 2 * s + b, 1, 0, context.cols()));
    }
    EXPECT_EQ(bits(context_of(one, below(inputs)).view()), bits(below(outputs).view()));
  }
}

TEST(Attention, NoTokenSeesTheFuture) {
  const AttentionShape shape{.sequence = 8, .batch = 1, .heads = 1, .head_dim = 4};
  const Tensor qkv = random_qkv(shape, DType::kF32);
  const auto before = to_doubles(context_of(shape, qkv).view());
  Tensor changed = qkv.clone();
  for (std::size_t i = 5 * 12; i < 6 * 12; ++i)
    changed.values<float>()[i] = std::numeric_limits<float>::quiet_NaN();
  const auto after = to_doubles(context_of(shape, changed).view());
  for (std::size_t i = 0; i < 5 * 4; ++i) EXPECT_EQ(after[i], before[i]) << i;
  for (std::size_t i = 5 * 4; i < after.size(); ++i) EXPECT_TRUE(std::isnan(after[i])) << i;
}

TEST(Attention, LargeScoresDoNotOverflow) {
  const AttentionShape shape{.sequence = 3, .batch = 1, .heads = 1, .head_dim = 1};
  // Scores of token 2: 0, 1e6, 1e6: half of each of the last two values.
  const Tensor qkv = Tensor::of<float>({0, 0, 7, 0, 1e3F, 2, 1e3F, 1e3F, 4}, {3, 3});
  EXPECT_EQ(to_doubles(context_of(shape, qkv).view())[2], 3);
}

TEST(Attention, Bf16IsTheF32ResultRoundedOnce) {
  const AttentionShape shape{.sequence = 12, .batch = 2, .heads = 2, .head_dim = 8};
  const Tensor qkv = random_qkv(shape, DType::kBF16);
  const Tensor dcontext = random_tensor(DType::kBF16, {tokens_of(shape), width_of(shape)}, 25);
  const Tensor wide = converted(qkv.view(), DType::kF32);
  const Tensor wide_gradient = gradient_of(shape, wide, converted(dcontext.view(), DType::kF32));
  EXPECT_EQ(bits(context_of(shape, qkv).view()),
            bits(converted(context_of(shape, wide).view(), DType::kBF16).view()));
  EXPECT_EQ(bits(gradient_of(shape, qkv, dcontext).view()),
            bits(converted(wide_gradient.view(), DType::kBF16).view()));
}

TEST(Attention, ProbabilitiesAreF32OrF64) {
  const AttentionShape shape{.sequence = 2, .batch = 3, .heads = 1, .head_dim = 2};
  for (const auto& [dtype, saved] :
       {std::pair{DType::kF64, DType::kF64}, {DType::kF32, DType::kF32}, {DType::kBF16, DType::kF32}}) {
    Tensor context(dtype, {6, 2});
    const Tensor probabilities = attention_forward(shape, random_qkv(shape, dtype).view(), context);
    EXPECT_EQ(probabilities.dtype(), saved);
    EXPECT_EQ(probabilities.shape(), (Shape{3, 1, 2, 2}));
  }
}

TEST(Attention, ProbabilitiesAreOrderedBySequenceThenHead) {
  // Token 1 scores ln n with token 0 and 0 with itself: n / (n + 1), for n = 1 to 6 over [B, heads].
  const AttentionShape shape{.sequence = 2, .batch = 2, .heads = 3, .head_dim = 1};
  Tensor qkv(DType::kF64, {4, 9});
  const auto values = qkv.values<double>();
  for (std::size_t b = 0; b < 2; ++b) {
    for (std::size_t head = 0; head < 3; ++head) {
      values[b * 9 + head * 3 + 1] = std::log(static_cast<double>(b * 3 + head + 1));  // k of token 0
      values[(2 + b) * 9 + head * 3] = 1;                                              // q of token 1
    }
  }
  Tensor context(DType::kF64, {4, 3});
  const auto p = to_doubles(attention_forward(shape, qkv.view(), context).view());
  for (std::size_t i = 0; i < 6; ++i) {
    const auto n = static_cast<double>(i + 1);
    EXPECT_NEAR(p[i * 4 + 2], n / (n + 1), 1e-15) << i;
    EXPECT_NEAR(p[i * 4 + 3], 1 / (n + 1), 1e-15) << i;
  }
}

TEST(Attention, NoTokensAreNoError) {
  const AttentionShape shape{.sequence = 0, .batch = 2, .heads = 1, .head_dim = 2};
  EXPECT_EQ(context_of(shape, random_qkv(shape, DType::kF32)).numel(), 0);
}

TEST(Attention, RefusesWrongViews) {
  const AttentionShape shape{.sequence = 4, .batch = 1, .heads = 2, .head_dim = 3};
  const Tensor qkv = random_qkv(shape, DType::kF32);
  Tensor context(DType::kF32, {4, 6});
  Tensor narrow_context(DType::kBF16, {4, 6});
  Tensor short_context(DType::kF32, {3, 6});
  EXPECT_THROW(attention_forward(shape, qkv.view(), narrow_context), Error);
  EXPECT_THROW(attention_forward(shape, qkv.view(), short_context), Error);
  EXPECT_THROW(attention_forward(shape, context.view(), context), Error);
  AttentionShape no_width = shape;
  no_width.head_dim = 0;
  EXPECT_THROW(attention_forward(no_width, qkv.view(), context), Error);
  Tensor dqkv(DType::kF32, qkv.shape());
  const Tensor flat(DType::kF32, {1, 2, 4, 3});
  EXPECT_THROW(attention_backward(shape, qkv.view(), flat.view(), context.view(), dqkv), Error);
}

}  // namespace
}  // namespace amaxscope::megatron
