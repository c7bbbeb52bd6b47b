#include "kernels/update_stats.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/error.hpp"
#include "tests/kernels/values.hpp"

namespace amaxscope::test {
namespace {

UpdateStats of_bf16(float weight, double update) {
  return update_stats(Tensor::of<BF16>({to_bf16(weight)}, {1}), Tensor::of<double>({update}, {1}));
}

TEST(UpdateStats, SumsOfSquaresAndCounts) {
  const UpdateStats stats =
      update_stats(Tensor::of<float>({3, 4, 0, kNaN, 1}, {5}), Tensor::of<float>({1, 0, 0.5F, 1, kInf}, {5}));
  EXPECT_EQ(stats.pairs, 3U);
  EXPECT_EQ(stats.nonfinite, 2U);
  EXPECT_EQ(stats.nonzero, 2U);
  EXPECT_EQ(stats.lost, 0U);
  EXPECT_EQ(stats.weight_squares, 25.0);
  EXPECT_EQ(stats.update_squares, 1.25);
}

/// bf16 has 1, 1 + 2^-7 and, below, 1 - 2^-8.
TEST(UpdateStats, LostIsHalfTheDistanceToTheNeighbourInThatDirection) {
  EXPECT_EQ(of_bf16(1.0F, 0x1p-9).lost, 1U);
  EXPECT_EQ(of_bf16(1.0F, 0x1p-8).lost, 1U) << "half way, the even one is the weight";
  EXPECT_EQ(of_bf16(1.0F, 0x1p-8 + 0x1p-40).lost, 0U) << "just more than half";
  EXPECT_EQ(of_bf16(1.0F, -0x1p-9).lost, 1U);
  EXPECT_EQ(of_bf16(1.0F, -0x1p-9 - 0x1p-40).lost, 0U) << "below a power of two the grid is finer";
  EXPECT_EQ(of_bf16(-1.0F, -0x1p-8).lost, 1U);
  EXPECT_EQ(of_bf16(-1.0F, 0x1p-8).lost, 0U);
  EXPECT_EQ(of_bf16(1.0F + 0x1p-7F, 0x1p-8).lost, 0U) << "half way, the weight is odd";
  EXPECT_EQ(of_bf16(1.0F, 0.0).lost, 0U) << "nothing to lose";
  EXPECT_EQ(of_bf16(0.0F, 0x1p-140).lost, 1U) << "less than half of the smallest number";
  EXPECT_EQ(of_bf16(0.0F, 0x1p-133).lost, 0U);
}

/// An update is lost when weight + update, in double, is nearer to the weight than to both of its neighbours.
TEST(UpdateStats, EqualsTheNearestOfThreeNeighbours) {
  const std::vector<float> weights = sample(20'000, 3);
  const std::vector<float> noise = sample(20'000, 4);
  std::vector<float> updates;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    updates.push_back(noise[i] * (std::abs(weights[i]) + 1e-6F) * 0x1p-6F);
  }
  const Tensor update = Tensor::of<float>(std::span<const float>(updates), {20'000});
  const Tensor weight = Tensor::of<float>(std::span<const float>(weights), {20'000});
  std::uint64_t bf16 = 0;
  std::uint64_t f16 = 0;
  const Tensor as_bf16 = converted(weight, DType::kBF16);
  const Tensor as_f16 = converted(weight, DType::kF16);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (updates[i] == 0) continue;
    const BF16 b = as_bf16.values<BF16>()[i];
    const F16 h = as_f16.values<F16>()[i];
    const auto nearest_is_own = [](double own, double up, double down, double sum) {
      return std::abs(sum - own) < std::abs(sum - up) && std::abs(sum - own) < std::abs(sum - down);
    };
    const auto neighbours = [](auto half, auto make) {
      auto up = half;
      auto down = half;
      if ((half.bits & 0x7FFFU) == 0) {
        up.bits = 1;
        down.bits = 0x8001;
      } else {
        ++up.bits;
        --down.bits;
      }
      return std::pair<double, double>(make(up), make(down));
    };
    const auto wide = [](auto half) { return static_cast<double>(to_float(half)); };
    const auto [b_up, b_down] = neighbours(b, wide);
    bf16 += nearest_is_own(wide(b), b_up, b_down, wide(b) + static_cast<double>(updates[i])) ? 1U : 0U;
    const auto [h_up, h_down] = neighbours(h, wide);
    f16 += nearest_is_own(wide(h), h_up, h_down, wide(h) + static_cast<double>(updates[i])) ? 1U : 0U;
  }
  EXPECT_EQ(update_stats(as_bf16, update).lost, bf16);
  EXPECT_EQ(update_stats(as_f16, update).lost, f16);
  EXPECT_GT(bf16, 1000U);
  EXPECT_GT(f16, 100U);
  EXPECT_LT(f16, bf16) << "three more bits lose less";
}

TEST(UpdateStats, WiderWeightsLoseLess) {
  const Tensor update = Tensor::of<float>({0x1p-20F}, {1});
  EXPECT_EQ(update_stats(Tensor::of<BF16>({to_bf16(1.0F)}, {1}), update).lost, 1U);
  EXPECT_EQ(update_stats(Tensor::of<float>({1.0F}, {1}), update).lost, 0U);
  const Tensor tiny = Tensor::of<double>({0x1p-30}, {1});
  EXPECT_EQ(update_stats(Tensor::of<float>({1.0F}, {1}), tiny).lost, 1U);
  EXPECT_EQ(update_stats(Tensor::of<double>({1.0}, {1}), tiny).lost, 0U);
}

TEST(UpdateStats, TheLargestNumberAndSubnormals) {
  const float largest = std::numeric_limits<float>::max();
  EXPECT_EQ(update_stats(Tensor::of<float>({largest}, {1}), Tensor::of<float>({0x1p100F}, {1})).lost, 1U);
  EXPECT_EQ(update_stats(Tensor::of<float>({largest}, {1}), Tensor::of<float>({0x1p104F}, {1})).lost, 0U);
  EXPECT_EQ(update_stats(Tensor::of<float>({kDenormal}, {1}), Tensor::of<float>({-kDenormal}, {1})).lost, 0U);
}

TEST(UpdateStats, AddsUpPaddingAndEmptyOnes) {
  UpdateStats stats;
  const PaddedMatrix<float> weight({1, 2, 3, 4}, {2, 2}, 5, kNaN);
  const PaddedMatrix<float> update({1, 0, 1, 1}, {2, 2}, 3, kNaN);
  stats += update_stats(weight.view(), update.view());
  stats += update_stats(weight.view(), update.view());
  stats += update_stats(TensorView(nullptr, DType::kBF16, {0, 4}), TensorView(nullptr, DType::kF32, {0, 4}));
  EXPECT_EQ(stats.pairs, 8U);
  EXPECT_EQ(stats.nonfinite, 0U);
  EXPECT_EQ(stats.nonzero, 6U);
  EXPECT_EQ(stats.weight_squares, 60.0);
}

TEST(UpdateStats, RefusesOtherShapesAndTypes) {
  const Tensor two = Tensor::of<float>({1, 2}, {2});
  EXPECT_THROW(update_stats(two, Tensor::of<float>({1}, {1})), Error);
  EXPECT_THROW(update_stats(two, Tensor::of<BF16>({to_bf16(1.0F), to_bf16(1.0F)}, {2})), Error);
  EXPECT_THROW(update_stats(Tensor(DType::kE4M3, {2}), two), Error);
}

}  // namespace
}  // namespace amaxscope::test
