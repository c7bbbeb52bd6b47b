#include "megatron/ops/activation.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/error.hpp"
#include "tests/megatron/tensors.hpp"

namespace amaxscope::megatron {
namespace {

using namespace amaxscope::megatron::testing;

Tensor gelu(const Tensor& x) {
  Tensor y(x.dtype(), x.shape());
  gelu_forward(x.view(), y);
  return y;
}

Tensor gelu_slope(const Tensor& x) {
  Tensor ones = Tensor(DType::kF64, x.shape());
  for (double& value : ones.values<double>()) value = 1;
  const Tensor dy = converted(ones.view(), x.dtype());
  Tensor dx(x.dtype(), x.shape());
  gelu_backward(x.view(), dy.view(), dx);
  return dx;
}

// Tables of the normal distribution: Phi(1) = 0.841344746068542949, phi(1) = 0.241970724519143350,
// Phi(-10) = 7.61985302416052606e-24.
TEST(Gelu, HasTheValuesOfTheNormalDistribution) {
  const auto y = to_doubles(gelu(Tensor::of<double>({0, 1, -1, -10, 10}, {5})).view());
  EXPECT_EQ(y[0], 0);
  EXPECT_NEAR(y[1], 0.841344746068542949, 1e-15);
  EXPECT_NEAR(y[2], -0.158655253931457051, 1e-15);
  EXPECT_NEAR(y[3], -7.61985302416052606e-23, 1e-36);
  EXPECT_EQ(y[4], 10);
  const auto slope = to_doubles(gelu_slope(Tensor::of<double>({0, 1, -1}, {3})).view());
  EXPECT_EQ(slope[0], 0.5);
  EXPECT_NEAR(slope[1], 0.841344746068542949 + 0.241970724519143350, 1e-15);
  EXPECT_NEAR(slope[2], 0.158655253931457051 - 0.241970724519143350, 1e-15);
}

TEST(Gelu, BackwardAgreesWithFiniteDifferences) {
  Tensor x = random_tensor(DType::kF64, {6, 7}, 1, 4.0);
  const Tensor dy = random_tensor(DType::kF64, {6, 7}, 2);
  Tensor dx(DType::kF64, x.shape());
  gelu_backward(x.view(), dy.view(), dx);
  EXPECT_LT(gradient_error(x, dx, [&] { return weighted_sum(dy, gelu(x)); }), 1e-6);
}

TEST(Gelu, F32KeepsItsPrecisionInTheLeftTail) {
  const Tensor x = random_tensor(DType::kF32, {1000}, 3, 9.0);
  const Tensor exact = converted(x.view(), DType::kF64);
  const auto wanted = to_doubles(gelu(exact).view());
  const auto found = to_doubles(gelu(x).view());
  const auto wanted_slope = to_doubles(gelu_slope(exact).view());
  const auto found_slope = to_doubles(gelu_slope(x).view());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    // The argument x / sqrt(2) is rounded to fp32; exp(-x^2 / 2) turns that into a relative error of x^2 / 2
    // ulps.
    EXPECT_NEAR(found[i], wanted[i], std::abs(wanted[i]) * 90 * 0x1p-24) << "x = " << to_doubles(x.view())[i];
    EXPECT_NEAR(found_slope[i], wanted_slope[i], 4e-7) << "x = " << to_doubles(x.view())[i];
  }
}

TEST(Gelu, Bf16IsTheF32ResultRoundedOnce) {
  const Tensor x = random_tensor(DType::kBF16, {500}, 4, 5.0);
  const Tensor wide = converted(x.view(), DType::kF32);
  EXPECT_EQ(bits(gelu(x).view()), bits(converted(gelu(wide).view(), DType::kBF16).view()));
  EXPECT_EQ(bits(gelu_slope(x).view()), bits(converted(gelu_slope(wide).view(), DType::kBF16).view()));
}

TEST(Gelu, NanStaysNan) {
  const Tensor x = Tensor::of<float>({std::numeric_limits<float>::quiet_NaN(), 1}, {2});
  EXPECT_TRUE(std::isnan(to_doubles(gelu(x).view())[0]));
  EXPECT_TRUE(std::isnan(to_doubles(gelu_slope(x).view())[0]));
  EXPECT_FALSE(std::isnan(to_doubles(gelu(x).view())[1]));
}

TEST(Gelu, RefusesOtherShapesAndTypes) {
  const Tensor x(DType::kF32, {2, 3});
  Tensor wrong_shape(DType::kF32, {3, 2});
  Tensor wrong_type(DType::kBF16, {2, 3});
  EXPECT_THROW(gelu_forward(x.view(), wrong_shape), Error);
  EXPECT_THROW(gelu_forward(x.view(), wrong_type), Error);
  EXPECT_THROW(gelu_backward(x.view(), wrong_shape.view(), wrong_shape), Error);
  const Tensor half(DType::kF16, {2});
  Tensor half_out(DType::kF16, {2});
  EXPECT_THROW(gelu_forward(half.view(), half_out), Error);
}

TEST(GradientError, SeesAGradientThatIsSlightlyOff) {
  Tensor x = random_tensor(DType::kF64, {5}, 7);
  const auto loss = [&] { return weighted_sum(x, x) / 2; };
  Tensor gradient = x.clone();
  EXPECT_LT(gradient_error(x, gradient, loss), 1e-6);
  gradient.values<double>()[3] *= 1 + 1e-5;
  EXPECT_GT(gradient_error(x, gradient, loss), 5e-6);
}

}  // namespace
}  // namespace amaxscope::megatron
