#include "megatron/ops/normalization.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/error.hpp"
#include "tests/megatron/tensors.hpp"

namespace amaxscope::megatron {
namespace {

using namespace amaxscope::megatron::testing;

constexpr double kEpsilon = 1e-5;

struct Problem {
  Tensor x, weight, bias, dy;
};

Problem make_problem(DType dtype, std::int64_t rows, std::int64_t width) {
  return {random_tensor(dtype, {rows, width}, 11, 3.0), random_tensor(dtype, {width}, 12, 2.0),
          random_tensor(dtype, {width}, 13), random_tensor(dtype, {rows, width}, 14)};
}

Tensor forward(NormKind kind, const Problem& problem, double epsilon = kEpsilon) {
  Tensor y(problem.x.dtype(), problem.x.shape());
  norm_forward(kind, problem.x.view(), problem.weight.view(), problem.bias.view(), epsilon, y);
  return y;
}

struct Gradients {
  Tensor dx, dweight, dbias;
};

Gradients backward(NormKind kind, const Problem& problem, double epsilon = kEpsilon) {
  Tensor y(problem.x.dtype(), problem.x.shape());
  const NormSaved saved =
      norm_forward(kind, problem.x.view(), problem.weight.view(), problem.bias.view(), epsilon, y);
  const DType sums = problem.x.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
  Gradients result{Tensor(problem.x.dtype(), problem.x.shape()), Tensor(sums, problem.weight.shape()),
                   Tensor(sums, problem.weight.shape())};
  norm_backward(kind, problem.x.view(), problem.weight.view(), saved, problem.dy.view(), result.dx,
                result.dweight, result.dbias);
  return result;
}

class Norm : public ::testing::TestWithParam<NormKind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, Norm, ::testing::Values(NormKind::kLayerNorm, NormKind::kRmsNorm),
                         [](const auto& tested) {
                           return tested.param == NormKind::kLayerNorm ? "LayerNorm" : "RmsNorm";
                         });

TEST(LayerNorm, HandWorkedRow) {
  // mean 2, variance 1: normalized -1, 1.
  const Problem problem{Tensor::of<double>({1, 3}, {1, 2}), Tensor::of<double>({2, 3}, {2}),
                        Tensor::of<double>({10, 20}, {2}), Tensor::of<double>({5, 7}, {1, 2})};
  EXPECT_EQ(to_doubles(forward(NormKind::kLayerNorm, problem, 0).view()), (std::vector<double>{8, 23}));
  const Gradients gradients = backward(NormKind::kLayerNorm, problem, 0);
  EXPECT_EQ(to_doubles(gradients.dweight.view()), (std::vector<double>{-5, 7}));
  EXPECT_EQ(to_doubles(gradients.dbias.view()), (std::vector<double>{5, 7}));
  // Two values normalized are -1 and 1 whatever they are, so nothing flows back.
  EXPECT_EQ(to_doubles(gradients.dx.view()), (std::vector<double>{0, 0}));
}

TEST(LayerNorm, EpsilonIsInsideTheRoot) {
  const Problem problem{Tensor::of<double>({1, 3}, {1, 2}), Tensor::of<double>({1, 1}, {2}),
                        Tensor::of<double>({0, 0}, {2}), Tensor::of<double>({1, 0}, {1, 2})};
  EXPECT_EQ(to_doubles(forward(NormKind::kLayerNorm, problem, 3).view()), (std::vector<double>{-0.5, 0.5}));
}

TEST(RmsNorm, HandWorkedRow) {
  // mean square 12.5; with dy = (1, 0): dx = (1 - 9/25, -12/25) / sqrt(12.5).
  const Problem problem{Tensor::of<double>({3, 4}, {1, 2}), Tensor::of<double>({1, 2}, {2}), Tensor(),
                        Tensor::of<double>({1, 0}, {1, 2})};
  const double root = std::sqrt(12.5);
  const auto y = to_doubles(forward(NormKind::kRmsNorm, problem, 0).view());
  EXPECT_NEAR(y[0], 3 / root, 1e-15);
  EXPECT_NEAR(y[1], 8 / root, 1e-15);
  const Gradients gradients = backward(NormKind::kRmsNorm, problem, 0);
  EXPECT_NEAR(to_doubles(gradients.dx.view())[0], 0.64 / root, 1e-15);
  EXPECT_NEAR(to_doubles(gradients.dx.view())[1], -0.48 / root, 1e-15);
  EXPECT_NEAR(to_doubles(gradients.dweight.view())[0], 3 / root, 1e-15);
  EXPECT_EQ(to_doubles(gradients.dweight.view())[1], 0);
  EXPECT_EQ(to_doubles(gradients.dbias.view()), (std::vector<double>{0, 0}));  // RMSNorm has no bias
}

TEST_P(Norm, BackwardAgreesWithFiniteDifferences) {
  Problem problem = make_problem(DType::kF64, 5, 9);
  const Gradients gradients = backward(GetParam(), problem);
  const auto loss = [&] { return weighted_sum(problem.dy, forward(GetParam(), problem)); };
  EXPECT_LT(gradient_error(problem.x, gradients.dx, loss), 1e-6);
  EXPECT_LT(gradient_error(problem.weight, gradients.dweight, loss), 1e-6);
  EXPECT_LT(gradient_error(problem.bias, gradients.dbias, loss), 1e-6);
}

TEST_P(Norm, WeightGradientsAreAddedToWhatIsThere) {
  const Problem problem = make_problem(DType::kF64, 3, 4);
  const Gradients fresh = backward(GetParam(), problem);
  Tensor y(DType::kF64, problem.x.shape());
  const NormSaved saved =
      norm_forward(GetParam(), problem.x.view(), problem.weight.view(), problem.bias.view(), kEpsilon, y);
  Gradients twice = backward(GetParam(), problem);
  norm_backward(GetParam(), problem.x.view(), problem.weight.view(), saved, problem.dy.view(), twice.dx,
                twice.dweight, twice.dbias);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_DOUBLE_EQ(to_doubles(twice.dweight.view())[i], 2 * to_doubles(fresh.dweight.view())[i]);
    EXPECT_DOUBLE_EQ(to_doubles(twice.dbias.view())[i], 2 * to_doubles(fresh.dbias.view())[i]);
  }
  EXPECT_EQ(bits(twice.dx.view()), bits(fresh.dx.view()));
}

TEST_P(Norm, NarrowTypesAreTheF64ResultRoundedOnce) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Problem narrow = make_problem(dtype, 17, 33);
    const Problem wide{converted(narrow.x.view(), DType::kF64), converted(narrow.weight.view(), DType::kF64),
                       converted(narrow.bias.view(), DType::kF64), converted(narrow.dy.view(), DType::kF64)};
    EXPECT_EQ(bits(forward(GetParam(), narrow).view()),
              bits(converted(forward(GetParam(), wide).view(), dtype).view()));
    const Gradients found = backward(GetParam(), narrow);
    const Gradients wanted = backward(GetParam(), wide);
    EXPECT_EQ(bits(found.dx.view()), bits(converted(wanted.dx.view(), dtype).view()));
    EXPECT_EQ(bits(found.dweight.view()), bits(converted(wanted.dweight.view(), DType::kF32).view()));
    EXPECT_EQ(bits(found.dbias.view()), bits(converted(wanted.dbias.view(), DType::kF32).view()));
  }
}

TEST_P(Norm, RowsDoNotDependOnHowTheyAreSplit) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16}) {
    const Problem whole = make_problem(dtype, 16, 40);
    const Gradients whole_gradients = backward(GetParam(), whole);
    for (const std::int64_t parts : {2, 4, 16}) {
      std::vector<Tensor> y;
      std::vector<Tensor> dx;
      for (std::int64_t part = 0; part < parts; ++part) {
        const std::int64_t rows = 16 / parts;
        const Problem slice{block(whole.x.view(), part * rows, rows, 0, 40), whole.weight.clone(),
                            whole.bias.clone(), block(whole.dy.view(), part * rows, rows, 0, 40)};
        y.push_back(forward(GetParam(), slice));
        dx.push_back(backward(GetParam(), slice).dx);
      }
      EXPECT_EQ(bits(below(y).view()), bits(forward(GetParam(), whole).view()))
          << to_string(dtype) << " in " << parts;
      EXPECT_EQ(bits(below(dx).view()), bits(whole_gradients.dx.view()))
          << to_string(dtype) << " in " << parts;
    }
  }
}

TEST_P(Norm, MayWorkInPlace) {
  Problem problem = make_problem(DType::kF32, 4, 8);
  const auto y = bits(forward(GetParam(), problem).view());
  const auto dx = bits(backward(GetParam(), problem).dx.view());
  Tensor scratch(DType::kF32, problem.x.shape());
  const NormSaved saved = norm_forward(GetParam(), problem.x.view(), problem.weight.view(),
                                       problem.bias.view(), kEpsilon, scratch);
  Tensor sums(DType::kF32, {8});
  norm_backward(GetParam(), problem.x.view(), problem.weight.view(), saved, problem.dy.view(), problem.dy,
                sums, sums);
  EXPECT_EQ(bits(problem.dy.view()), dx);
  norm_forward(GetParam(), problem.x.view(), problem.weight.view(), problem.bias.view(), kEpsilon, problem.x);
  EXPECT_EQ(bits(problem.x.view()), y);
}

TEST(LayerNorm, LargeMeanDoesNotCancel) {
  // In fp32 these are exact; mean 2^20 + 1.5, variance 1.25. A sum of squares in fp32 would lose all of it.
  const Problem problem{Tensor::of<float>({0x1p20F, 0x1p20F + 1, 0x1p20F + 2, 0x1p20F + 3}, {1, 4}),
                        Tensor::of<float>({1, 1, 1, 1}, {4}), Tensor::of<float>({0, 0, 0, 0}, {4}), Tensor()};
  const auto y = to_doubles(forward(NormKind::kLayerNorm, problem, 0).view());
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_FLOAT_EQ(static_cast<float>(y[i]),
                    static_cast<float>((static_cast<double>(i) - 1.5) / std::sqrt(1.25)));
  }
}

TEST_P(Norm, NanStaysInItsRow) {
  Problem problem = make_problem(DType::kF32, 3, 4);
  problem.x.values<float>()[5] = std::numeric_limits<float>::quiet_NaN();
  const auto y = to_doubles(forward(GetParam(), problem).view());
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i / 4 == 1) << i;
}

TEST_P(Norm, NoRowsAreNoError) {
  const Problem problem = make_problem(DType::kF32, 0, 4);
  EXPECT_EQ(to_doubles(backward(GetParam(), problem).dweight.view()), std::vector<double>(4));
}

TEST(LayerNorm, RefusesWrongViews) {
  const Problem problem = make_problem(DType::kF32, 3, 4);
  Tensor y(DType::kF32, {3, 4});
  const Tensor short_weight(DType::kF32, {3});
  const Tensor wide_weight(DType::kF64, {4});
  const auto run = [&](const Tensor& weight, const Tensor& bias, Tensor& out) {
    norm_forward(NormKind::kLayerNorm, problem.x.view(), weight.view(), bias.view(), kEpsilon, out);
  };
  EXPECT_THROW(run(short_weight, problem.bias, y), Error);
  EXPECT_THROW(run(wide_weight, problem.bias, y), Error);
  EXPECT_THROW(run(problem.weight, Tensor(), y), Error);
  Tensor other(DType::kF32, {4, 3});
  EXPECT_THROW(run(problem.weight, problem.bias, other), Error);
  Tensor bf16_sums(DType::kBF16, {4});
  Tensor sums(DType::kF32, {4});
  const NormSaved saved = norm_forward(NormKind::kLayerNorm, problem.x.view(), problem.weight.view(),
                                       problem.bias.view(), kEpsilon, y);
  EXPECT_THROW(norm_backward(NormKind::kLayerNorm, problem.x.view(), problem.weight.view(), saved,
                             problem.dy.view(), y, bf16_sums, sums),
               Error);
  const NormSaved none{Tensor(DType::kF64, {2}), Tensor(DType::kF64, {2})};
  EXPECT_THROW(norm_backward(NormKind::kLayerNorm, problem.x.view(), problem.weight.view(), none,
                             problem.dy.view(), y, sums, sums),
               Error);
}

}  // namespace
}  // namespace amaxscope::megatron
