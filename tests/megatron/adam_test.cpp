#include "megatron/adam.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "core/error.hpp"
#include "tests/megatron/tensors.hpp"

namespace amaxscope::megatron {
namespace {

using ::testing::HasSubstr;
using namespace amaxscope::megatron::testing;

Parameter constant(double value, DType dtype = DType::kF64, Shape shape = {1}) {
  Parameter parameter("w", shape, dtype, Layout::kReplicated);
  initialize_constant(parameter, value);
  return parameter;
}

void set_gradient(Parameter& parameter, const Tensor& gradient) {
  parameter.gradient = converted(gradient.view(), parameter.master.dtype());
}

double weight(const Parameter& parameter) { return to_doubles(parameter.master.view())[0]; }

TEST(Adam, FirstStepMovesEveryWeightByTheLearningRate) {
  // After bias correction m = g and v = g^2, so that the direction is the sign of g.
  for (const double gradient : {1e-6, -3.0, 1e6}) {
    Parameter parameter = constant(2);
    parameter.gradient.values<double>()[0] = gradient;
    Adam adam({&parameter}, {.epsilon = 0});
    adam.step(0.125);
    EXPECT_NEAR(weight(parameter), 2 - std::copysign(0.125, gradient), 1e-14) << gradient;
  }
}

TEST(Adam, EpsilonIsOutsideTheRoot) {
  Parameter parameter = constant(0);
  parameter.gradient.values<double>()[0] = 3;
  Adam adam({&parameter}, {.epsilon = 1});
  adam.step(1);
  EXPECT_NEAR(weight(parameter), -0.75, 1e-15);
}

TEST(Adam, WeightDecayIsDecoupledFromTheGradient) {
  Parameter parameter = constant(8);
  Adam adam({&parameter}, {.weight_decay = 0.5});
  adam.step(0.25);  // the gradient is 0: only w -= lr * decay * w
  EXPECT_EQ(weight(parameter), 7);
  parameter.gradient.values<double>()[0] = 1e4;
  Parameter plain = constant(7);
  plain.gradient.values<double>()[0] = 1e4;
  Adam without({&plain}, {});
  Adam with({&parameter}, {.weight_decay = 0.5});
  without.step(0.25);
  with.step(0.25);
  EXPECT_NEAR(weight(parameter), weight(plain) - 0.25 * 0.5 * 7, 1e-15);  // whatever the gradient
}

TEST(Adam, TellsWhatItIsAboutToDoAndDoesTheSameUnobserved) {
  const AdamOptions options{.beta1 = 0.5, .beta2 = 0.75, .epsilon = 0, .weight_decay = 0.5};
  Parameter observed = constant(2, DType::kF32, {2});
  Parameter ignored = constant(2, DType::kF32, {2});
  Parameter plain = constant(2, DType::kF32, {2});
  ignored.name = "ignored";
  Adam adam({&observed, &ignored}, options);
  Adam alone({&plain}, options);
  int told = 0;
  const UpdateObserver observer{
      .wants = [](const Parameter& parameter) { return parameter.name == "w"; },
      .tell =
          [&](const Parameter& parameter, const TensorView& update, const TensorView& normalized) {
            EXPECT_EQ(&parameter, &observed);
            const auto before = parameter.master.values<float>();
            const auto updates = update.values<float>();
            const auto ratio = normalized.values<float>();
            if (told == 0) {
              EXPECT_EQ(before[0], 2.0F);
              // Step 1: m = g and v = g^2 after correction; the decay of 2 is 1. 0.25 * (sign + 1).
              EXPECT_EQ(updates[0], -0.5F);
              EXPECT_EQ(updates[1], 0.0F);
              EXPECT_EQ(ratio[0], 1.0F);
              EXPECT_EQ(ratio[1], -1.0F);
            } else {
              // v = (0.75 * g^2 / 4 + (16 g)^2 / 4) / (1 - 9/16): 16 / sqrt((0.75 + 256) / 4 / (7 / 16)).
              EXPECT_NEAR(ratio[0], 16 / std::sqrt(256.75 / 1.75), 1e-6);
            }
            ++told;
          }};
  for (const double scale : {1.0, 16.0}) {
    for (Parameter* parameter : {&observed, &ignored, &plain}) {
      parameter->gradient.values<float>()[0] = static_cast<float>(3 * scale);
      parameter->gradient.values<float>()[1] = static_cast<float>(-5 * scale);
    }
    adam.step(0.25, false, observer);
    alone.step(0.25);
    EXPECT_EQ(to_doubles(observed.master.view()), to_doubles(plain.master.view()));
    EXPECT_EQ(to_doubles(ignored.master.view()), to_doubles(plain.master.view()));
  }
  EXPECT_EQ(told, 2);
}

TEST(Adam, AgreesWithAScalarLoop) {
  const AdamOptions options{.beta1 = 0.8, .beta2 = 0.9, .epsilon = 1e-3, .weight_decay = 0.1};
  Parameter parameter = constant(0, DType::kF64, {5});
  initialize_normal(parameter, 3, {5}, 0, 0, 1.0);
  std::vector<double> w = to_doubles(parameter.master.view());
  Adam adam({&parameter}, options);
  // Exponentially weighted means by their definition: weights beta^(t-i), normalized, instead of the
  // recurrence.
  std::vector<std::vector<double>> gradients;
  for (int t = 1; t <= 6; ++t) {
    set_gradient(parameter, random_tensor(DType::kF64, {5}, static_cast<std::uint64_t>(t)));
    gradients.push_back(to_doubles(parameter.gradient.view()));
    const double rate = 0.1 / t;
    adam.step(rate);
    for (std::size_t e = 0; e < w.size(); ++e) {
      double first = 0, first_weight = 0, second = 0, second_weight = 0;
      for (int i = 1; i <= t; ++i) {
        const double g = gradients[static_cast<std::size_t>(i - 1)][e];
        first += std::pow(0.8, t - i) * g;
        first_weight += std::pow(0.8, t - i);
        second += std::pow(0.9, t - i) * g * g;
        second_weight += std::pow(0.9, t - i);
      }
      w[e] -= rate * (first / first_weight / (std::sqrt(second / second_weight) + 1e-3) + 0.1 * w[e]);
      EXPECT_NEAR(to_doubles(parameter.master.view())[e], w[e], 1e-14) << "step " << t << " element " << e;
      EXPECT_EQ(to_doubles(parameter.compute.view())[e], to_doubles(parameter.master.view())[e]);
    }
  }
}

TEST(Adam, ShardsMoveAsThePartsOfTheWhole) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16}) {
    const auto shard = [&](std::int64_t rows, std::int64_t row0) {
      Parameter parameter("w", {rows, 6}, dtype, Layout::kShard0);
      initialize_normal(parameter, 5, {8, 6}, row0, 0, 1.0);
      Adam adam({&parameter}, {.weight_decay = 0.01});
      for (std::uint64_t step = 0; step < 5; ++step) {
        const Tensor gradient = random_tensor(DType::kF64, {8, 6}, step);
        set_gradient(parameter, block(gradient.view(), row0, rows, 0, 6));
        adam.step(0.01);
      }
      return parameter;
    };
    const Parameter whole = shard(8, 0);
    for (const std::int64_t ranks : {2, 4}) {
      std::vector<Tensor> masters;
      std::vector<Tensor> computes;
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        Parameter part = shard(8 / ranks, rank * 8 / ranks);
        masters.push_back(std::move(part.master));
        computes.push_back(std::move(part.compute));
      }
      EXPECT_EQ(bits(below(masters).view()), bits(whole.master.view())) << to_string(dtype);
      EXPECT_EQ(bits(below(computes).view()), bits(whole.compute.view())) << to_string(dtype);
    }
  }
}

TEST(Adam, SmallStepsAreNotLostUnderBf16) {
  // A step of 1e-4 is less than half of bf16's spacing below 1 (2^-8), so that bf16 weights alone would stay
  // at 1.
  Parameter parameter = constant(1, DType::kBF16);
  parameter.gradient.values<float>()[0] = 1;
  Adam adam({&parameter}, {});
  adam.step(1e-4);
  EXPECT_EQ(to_doubles(parameter.compute.view())[0], 1);
  for (int step = 1; step < 100; ++step) adam.step(1e-4);
  EXPECT_NEAR(weight(parameter), 0.99, 1e-5);
  EXPECT_EQ(to_doubles(parameter.compute.view())[0], 1 - 0x3p-8);  // 0.98828125, the nearest bf16
}

TEST(Adam, FindsAMinimum) {
  Parameter parameter = constant(3, DType::kF32);
  Adam adam({&parameter}, {});
  for (int step = 0; step < 400; ++step) {
    parameter.gradient.values<float>()[0] = 2 * (parameter.master.values<float>()[0] - 1);
    adam.step(step < 200 ? 0.05 : 0.005);
  }
  EXPECT_NEAR(weight(parameter), 1, 0.01);
}

TEST(Adam, AddsNothingWithoutGradientAndPassesNanOn) {
  Parameter still = constant(3, DType::kF32);
  Parameter broken = constant(3, DType::kF32);
  broken.gradient.values<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  Adam adam({&still, &broken}, {});
  adam.step(0.1);
  EXPECT_EQ(weight(still), 3);
  EXPECT_TRUE(std::isnan(weight(broken)));
}

TEST(Adam, RefusesOptionsOutOfRange) {
  Parameter parameter = constant(1);
  const auto message = [&](AdamOptions options) -> std::string {
    try {
      Adam adam({&parameter}, options);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUsage);
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(message({.beta1 = 1}), HasSubstr("beta1 is 1"));
  EXPECT_THAT(message({.beta2 = -0.1}), HasSubstr("beta2 is -0.1"));
  EXPECT_THAT(message({.epsilon = -1}), HasSubstr("epsilon is -1"));
  EXPECT_THAT(message({.weight_decay = std::numeric_limits<double>::infinity()}),
              HasSubstr("weight_decay is inf"));
  EXPECT_THROW(Adam({nullptr}, {}), Error);
  Adam adam({&parameter}, {});
  EXPECT_THROW(adam.step(std::numeric_limits<double>::quiet_NaN()), Error);
  EXPECT_EQ(weight(parameter), 1);
}

}  // namespace
}  // namespace amaxscope::megatron
