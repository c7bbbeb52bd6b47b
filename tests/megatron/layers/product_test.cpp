// One GEMM with what follows it: reductions, factors, planted faults.
#include "megatron/layers/product.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "collectives/loopback_communicator.hpp"
#include "megatron/faults.hpp"
#include "megatron/model_support.hpp"

namespace amaxscope::megatron {
namespace {

using testing::to_doubles;

struct Factors {
  Tensor a;
  Tensor b;
};

std::vector<double> product_of(Communicator& tp, const Factors& factors, float scale_inv,
                               GemmArithmetic arithmetic, Reduction reduction,
                               const FaultTable* faults = nullptr) {
  LayerContext context;
  context.tp = &tp;
  context.arithmetic = arithmetic;
  const Product product{.context = context,
                        .layer = "fc",
                        .result = TensorKind::kOutput,
                        .dtype = DType::kF32,
                        .reduction = reduction,
                        .debug = nullptr,
                        .faults = faults};
  return to_doubles(
      multiply(product, {factors.a.view(), false, scale_inv}, {factors.b.view(), false, 1.0F}, {}).view());
}

// 2^40 on one rank and 1 - 2^40 on the other: their sum is 1. A third of each, rounded to fp64, would leave
// an error of 2^-14; the sum over the unscaled products leaves none.
TEST(Product, ExactSumsAreScaledAfterTheLastSum) {
  run_loopback_ranks(2, [](Communicator& tp) {
    const Factors factors =
        tp.rank() == 0
            ? Factors{Tensor::of<float>({0x1p20F, 0}, {1, 2}), Tensor::of<float>({0x1p20F, 0}, {1, 2})}
            : Factors{Tensor::of<float>({-0x1p20F, 1}, {1, 2}), Tensor::of<float>({0x1p20F, 1}, {1, 2})};
    const float third = 1.0F / 3.0F;
    EXPECT_EQ(product_of(tp, factors, third, GemmArithmetic::kExact, Reduction::kAllReduce),
              (std::vector<double>{static_cast<double>(third)}));
  });
}

TEST(Product, ExactSumsOfOtherFactorsAreScaledOneByOne) {
  run_loopback_ranks(2, [](Communicator& tp) {
    const Factors factors = {Tensor::of<float>({3, 1}, {1, 2}), Tensor::of<float>({2, 4}, {1, 2})};
    const float scale_inv = tp.rank() == 0 ? 0.5F : 4.0F;
    EXPECT_EQ(product_of(tp, factors, scale_inv, GemmArithmetic::kExact, Reduction::kAllReduce),
              (std::vector<double>{10 * 0.5 + 10 * 4.0}));
  });
}

TEST(Product, ReductionsUnderBothArithmetics) {
  run_loopback_ranks(2, [](Communicator& tp) {
    const float own = tp.rank() == 0 ? 1.0F : 10.0F;
    const Factors factors = {Tensor::of<float>({1 * own, 2 * own}, {2, 1}),
                             Tensor::of<float>({1, 3}, {2, 1})};
    for (const GemmArithmetic arithmetic : {GemmArithmetic::kBlas, GemmArithmetic::kExact}) {
      EXPECT_EQ(product_of(tp, factors, 1.0F, arithmetic, Reduction::kNone),
                (std::vector<double>{1.0 * own, 3.0 * own, 2.0 * own, 6.0 * own}));
      EXPECT_EQ(product_of(tp, factors, 1.0F, arithmetic, Reduction::kAllReduce),
                (std::vector<double>{11, 33, 22, 66}));
      EXPECT_EQ(product_of(tp, factors, 1.0F, arithmetic, Reduction::kReduceScatter),
                tp.rank() == 0 ? (std::vector<double>{11, 33}) : (std::vector<double>{22, 66}));
    }
  });
}

TEST(Product, PlantedNanPassesThroughTheReduction) {
  run_loopback_ranks(2, [](Communicator& tp) {
    const FaultTable faults({parse_fault("nan@layer=fc,tensor=output,rank=1,index=1")}, tp.rank());
    const Factors factors = {Tensor::of<float>({1, 2}, {2, 1}), Tensor::of<float>({1}, {1, 1})};
    for (const GemmArithmetic arithmetic : {GemmArithmetic::kBlas, GemmArithmetic::kExact}) {
      const std::vector<double> summed =
          product_of(tp, factors, 1.0F, arithmetic, Reduction::kAllReduce, &faults);
      EXPECT_EQ(summed[0], 2.0);
      EXPECT_TRUE(std::isnan(summed[1]));
      const std::vector<double> own = product_of(tp, factors, 1.0F, arithmetic, Reduction::kNone, &faults);
      EXPECT_EQ(std::isnan(own[1]), tp.rank() == 1);
    }
  });
}

}  // namespace
}  // namespace amaxscope::megatron
