#include "megatron/ops/heads.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.hpp"
#include "tests/megatron/tensors.hpp"

namespace amaxscope::megatron {
namespace {

using namespace amaxscope::megatron::testing;

constexpr AttentionShape kShape{.sequence = 3, .batch = 2, .heads = 2, .head_dim = 4};

/// The column of element i of a part (0 query, 1 key, 2 value) of a head in a row of qkv.
std::size_t at(std::size_t token, std::size_t head, std::size_t part, std::size_t i) {
  return token * 24 + head * 12 + part * 4 + i;
}

TEST(Heads, AreTakenByTokenThenHead) {
  Tensor qkv = random_tensor(DType::kF32, {6, 24}, 1);
  const std::vector<double> all = to_doubles(qkv.view());
  const std::vector<double> keys = to_doubles(take_heads(kShape, qkv, HeadPart::kKey).view());
  ASSERT_EQ(keys.size(), 6U * 2 * 4);
  for (std::size_t token = 0; token < 6; ++token) {
    for (std::size_t head = 0; head < 2; ++head) {
      for (std::size_t i = 0; i < 4; ++i)
        EXPECT_EQ(keys[(token * 2 + head) * 4 + i], all[at(token, head, 1, i)]);
    }
  }
}

TEST(Heads, PutBackChangesTheirPartOnly) {
  Tensor qkv = random_tensor(DType::kF32, {6, 24}, 1);
  const std::vector<double> before = to_doubles(qkv.view());
  const Tensor rows(DType::kF32, {12, 4});
  put_heads(kShape, rows, HeadPart::kQuery, qkv);
  const std::vector<double> after = to_doubles(qkv.view());
  for (std::size_t token = 0; token < 6; ++token) {
    for (std::size_t head = 0; head < 2; ++head) {
      for (std::size_t i = 0; i < 4; ++i) {
        EXPECT_EQ(after[at(token, head, 0, i)], 0);
        EXPECT_EQ(after[at(token, head, 1, i)], before[at(token, head, 1, i)]);
        EXPECT_EQ(after[at(token, head, 2, i)], before[at(token, head, 2, i)]);
      }
    }
  }
}

// Token t of [s, b] order stands at place t / batch; pairs (0, 2) and (1, 3) turn by s and s / 100.
TEST(RotaryPositions, TurnPairsByTheirPlace) {
  Tensor qkv = random_tensor(DType::kF64, {6, 24}, 2);
  const std::vector<double> before = to_doubles(qkv.view());
  rotate_positions(kShape, qkv);
  const std::vector<double> after = to_doubles(qkv.view());
  for (std::size_t token = 0; token < 6; ++token) {
    const auto place = static_cast<double>(token / 2);
    for (std::size_t head = 0; head < 2; ++head) {
      for (const std::size_t part : {0U, 1U}) {
        for (const std::size_t i : {0U, 1U}) {
          const double angle = i == 0 ? place : place / 100;
          const double a = before[at(token, head, part, i)];
          const double b = before[at(token, head, part, i + 2)];
          EXPECT_NEAR(after[at(token, head, part, i)], a * std::cos(angle) - b * std::sin(angle), 1e-15);
          EXPECT_NEAR(after[at(token, head, part, i + 2)], b * std::cos(angle) + a * std::sin(angle), 1e-15);
        }
      }
      for (std::size_t i = 0; i < 4; ++i)
        EXPECT_EQ(after[at(token, head, 2, i)], before[at(token, head, 2, i)]) << "values do not turn";
    }
  }
}

TEST(RotaryPositions, ScoresDependOnTheDistanceOnly) {
  // One head, one sequence of equal queries and equal keys at every place.
  const AttentionShape shape{.sequence = 5, .batch = 1, .heads = 1, .head_dim = 8};
  const Tensor one = random_tensor(DType::kF64, {24}, 3);
  Tensor qkv(DType::kF64, {5, 24});
  for (std::size_t i = 0; i < 5 * 24; ++i) qkv.values<double>()[i] = one.values<double>()[i % 24];
  rotate_positions(shape, qkv);
  const auto score = [&](std::size_t query, std::size_t key) {
    double sum = 0;
    for (std::size_t i = 0; i < 8; ++i)
      sum += qkv.values<double>()[query * 24 + i] * qkv.values<double>()[key * 24 + 8 + i];
    return sum;
  };
  EXPECT_NEAR(score(4, 2), score(2, 0), 1e-14);
  EXPECT_NEAR(score(3, 2), score(1, 0), 1e-14);
  EXPECT_GT(std::abs(score(3, 2) - score(4, 2)), 1e-3);
}

TEST(RotaryPositions, TurnedBackIsTheGradient) {
  Tensor x = random_tensor(DType::kF64, {6, 24}, 4);
  const Tensor dy = random_tensor(DType::kF64, {6, 24}, 5);
  Tensor dx = dy.clone();
  rotate_positions_back(kShape, dx);
  EXPECT_LT(gradient_error(x, dx,
                           [&] {
                             Tensor y = x.clone();
                             rotate_positions(kShape, y);
                             return weighted_sum(dy, y);
                           }),
            1e-6);
}

TEST(RotaryPositions, RefuseOddHeads) {
  Tensor qkv(DType::kF32, {1, 9});
  EXPECT_THROW(rotate_positions({.sequence = 1, .batch = 1, .heads = 1, .head_dim = 3}, qkv), Error);
}

}  // namespace
}  // namespace amaxscope::megatron
