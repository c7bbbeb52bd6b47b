#include "megatron/ops/routing.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/error.hpp"
#include "tests/megatron/tensors.hpp"

namespace amaxscope::megatron {
namespace {

using namespace amaxscope::megatron::testing;
using ::testing::ElementsAre;

/// Experts score a token [a, b] as a, b and 0.
Tensor scores() { return Tensor::of<double>({1, 0, 0, 1, 0, 0}, {3, 2}); }

TEST(Route, ChoosesTheLikeliestAndOrdersRowsByExpertThenToken) {
  const Tensor x = Tensor::of<double>({2, 1, -1, -2, 1, 3}, {3, 2});
  const Routing routing = route(x, scores().view(), 2);
  EXPECT_THAT(routing.chosen, ElementsAre(0, 1, 2, 0, 1, 0));
  EXPECT_THAT(routing.rows, ElementsAre(3, 2, 1));
  // Expert 0 has tokens 0, 1, 2 (rows 0 to 2), expert 1 tokens 0 and 2 (3, 4), expert 2 token 1 (5).
  EXPECT_THAT(routing.row_of_choice, ElementsAre(0, 3, 5, 1, 4, 2));
  const double sum = std::exp(2) + std::exp(1) + 1;
  EXPECT_NEAR(routing.probabilities[0], std::exp(2) / sum, 1e-15);
  EXPECT_NEAR(routing.probabilities[2], 1 / sum, 1e-15);
  EXPECT_EQ(to_doubles(routing.logits.view()), (std::vector<double>{2, 1, 0, -1, -2, 0, 1, 3, 0}));
}

TEST(Route, OfEqualsTheLowestIsChosenAndIdleExpertsHaveNoRow) {
  const Tensor x = random_tensor(DType::kF32, {4, 2}, 1);
  const Tensor weight(DType::kF32, {3, 2});
  const Routing routing = route(x.view(), weight.view(), 1);
  EXPECT_THAT(routing.chosen, ::testing::Each(0));
  EXPECT_THAT(routing.rows, ElementsAre(4, 0, 0));
}

TEST(Route, NanChoosesSomeExpert) {
  const Tensor x = Tensor::of<float>({NAN, 1}, {1, 2});
  const Routing routing = route(x.view(), converted(scores().view(), DType::kF32).view(), 2);
  EXPECT_NE(routing.chosen[0], routing.chosen[1]);
  EXPECT_TRUE(std::isnan(routing.probabilities[0]));
}

TEST(Route, RefusesMoreThanThereAre) {
  const Tensor x(DType::kF64, {1, 2});
  EXPECT_THROW(std::ignore = route(x.view(), scores().view(), 4), Error);
  EXPECT_THROW(std::ignore = route(x.view(), scores().view(), 0), Error);
}

TEST(Dispatch, CopiesARowForEachChoiceAndCombineWeighsThem) {
  const Tensor x = Tensor::of<double>({2, 1, -1, -2}, {2, 2});
  const Routing routing = route(x, scores().view(), 2);
  // Token 0: experts 0, 1; token 1: experts 2, 0. Rows: (0, 0), (0, 1), (1, 0), (2, 1).
  const Tensor rows = dispatch(routing, x);
  EXPECT_EQ(to_doubles(rows.view()), (std::vector<double>{2, 1, -1, -2, 2, 1, -1, -2}));
  const Tensor y = combine(routing, Tensor::of<double>({1, 0, 10, 0, 100, 0, 1000, 0}, {4, 2}));
  const std::vector<double>& p = routing.probabilities;
  EXPECT_NEAR(to_doubles(y.view())[0], p[0] * 1 + p[1] * 100, 1e-13);
  EXPECT_NEAR(to_doubles(y.view())[2], p[3 + 0] * 10 + p[3 + 2] * 1000, 1e-12);
}

TEST(Routing, BackwardAgreesWithFiniteDifferences) {
  Tensor x = random_tensor(DType::kF64, {5, 4}, 1, 2.0);
  Tensor weight = random_tensor(DType::kF64, {3, 4}, 2);
  Tensor values = random_tensor(DType::kF64, {10, 3}, 3);
  const Tensor dy = random_tensor(DType::kF64, {5, 3}, 4);
  const auto loss = [&] {
    const Routing routing = route(x.view(), weight.view(), 2);
    return weighted_sum(dy, combine(routing, values.view()));
  };
  const Routing routing = route(x.view(), weight.view(), 2);
  const CombineGradients gradients = combine_backward(routing, values.view(), dy.view());
  Tensor dweight(DType::kF64, weight.shape());
  const std::vector<double> dx_values =
      route_backward(routing, x.view(), weight.view(), gradients.dprobabilities, dweight);
  EXPECT_LT(gradient_error(values, gradients.dx, loss), 1e-6);
  EXPECT_LT(gradient_error(weight, dweight, loss), 1e-6);
  EXPECT_LT(gradient_error(x, Tensor::of<double>(dx_values, x.shape()), loss), 1e-6);
}

TEST(Dispatch, BackwardSumsTheRowsOfATokenAndWhatComesBeside) {
  const Tensor x = Tensor::of<double>({2, 1, -1, -2}, {2, 2});
  const Routing routing = route(x, scores().view(), 2);
  const Tensor dx = dispatch_backward(routing, Tensor::of<double>({1, 0, 10, 0, 100, 0, 1000, 5}, {4, 2}),
                                      std::vector<double>{0.5, 0.25, 0, 0});
  EXPECT_EQ(to_doubles(dx.view()), (std::vector<double>{101.5, 0.25, 1010, 5}));
}

}  // namespace
}  // namespace amaxscope::megatron
