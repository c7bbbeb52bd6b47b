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

Tensor swiglu(const Tensor& x) {
  Tensor y(x.dtype(), {x.rows(), x.cols() / 2});
  swiglu_forward(x.view(), y);
  return y;
}

// silu(1) = 1 / (1 + 1/e) = 0.7310585786300049; its slope there is s + s (1 - s) with s that number.
TEST(Swiglu, HandWorkedChannels) {
  const Tensor x = Tensor::of<double>({1, 3, 0, 5, -1, 2}, {1, 6});
  const auto y = to_doubles(swiglu(x).view());
  constexpr double kSigmoid = 0.73105857863000487926;
  EXPECT_NEAR(y[0], 3 * kSigmoid, 1e-15);
  EXPECT_EQ(y[1], 0);
  EXPECT_NEAR(y[2], -2 * (1 - kSigmoid), 1e-15);
  Tensor dx(DType::kF64, x.shape());
  swiglu_backward(x.view(), Tensor::of<double>({1, 1, 1}, {1, 3}).view(), dx);
  const auto slopes = to_doubles(dx.view());
  EXPECT_NEAR(slopes[0], 3 * (kSigmoid + kSigmoid * (1 - kSigmoid)), 1e-14);
  EXPECT_NEAR(slopes[1], kSigmoid, 1e-15);
  EXPECT_EQ(slopes[2], 2.5);
  EXPECT_EQ(slopes[3], 0);
}

TEST(Swiglu, BackwardAgreesWithFiniteDifferences) {
  Tensor x = random_tensor(DType::kF64, {6, 8}, 1, 4.0);
  const Tensor dy = random_tensor(DType::kF64, {6, 4}, 2);
  Tensor dx(DType::kF64, x.shape());
  swiglu_backward(x.view(), dy.view(), dx);
  EXPECT_LT(gradient_error(x, dx, [&] { return weighted_sum(dy, swiglu(x)); }), 1e-6);
}

TEST(Swiglu, Bf16IsTheF32ResultRoundedOnceAndExtremesStayFinite) {
  const Tensor x = random_tensor(DType::kBF16, {50, 10}, 4, 5.0);
  EXPECT_EQ(bits(swiglu(x).view()),
            bits(converted(swiglu(converted(x.view(), DType::kF32)).view(), DType::kBF16).view()));
  const auto y = to_doubles(swiglu(Tensor::of<float>({-1e4F, 2, 1e4F, 2}, {1, 4})).view());
  EXPECT_EQ(y[0], 0);
  EXPECT_EQ(y[1], 2e4);
}

TEST(Swiglu, RefusesOtherShapes) {
  const Tensor x(DType::kF32, {2, 6});
  Tensor y(DType::kF32, {2, 6});
  EXPECT_THROW(swiglu_forward(x.view(), y), Error);
  EXPECT_THROW(swiglu_backward(x.view(), y.view(), y), Error);
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
