#include "megatron/learning_rate.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace amaxscope::megatron {
namespace {

TEST(LearningRate, WarmsUpThenDecays) {
  const LearningRate constant{.peak = 0.5, .warmup_steps = 4};
  EXPECT_DOUBLE_EQ(constant.at(0), 0.125);
  EXPECT_DOUBLE_EQ(constant.at(3), 0.5);
  EXPECT_DOUBLE_EQ(constant.at(1000), 0.5);
  const LearningRate cosine{
      .peak = 1.0, .minimum = 0.1, .warmup_steps = 10, .total_steps = 110, .decay = Decay::kCosine};
  EXPECT_DOUBLE_EQ(cosine.at(10), 1.0);
  EXPECT_DOUBLE_EQ(cosine.at(60), 0.55);
  EXPECT_NEAR(cosine.at(35), 0.1 + 0.45 * (1 + std::numbers::sqrt2 / 2), 1e-12);
  EXPECT_DOUBLE_EQ(cosine.at(110), 0.1);
  EXPECT_DOUBLE_EQ(cosine.at(500), 0.1);
}

}  // namespace
}  // namespace amaxscope::megatron
