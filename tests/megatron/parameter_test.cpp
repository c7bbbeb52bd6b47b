#include "megatron/parameter.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "core/error.hpp"
#include "megatron/counter_hash.hpp"
#include "tests/megatron/tensors.hpp"

namespace amaxscope::megatron {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using namespace amaxscope::megatron::testing;

Parameter normal(Shape shape, std::int64_t row0 = 0, std::int64_t col0 = 0, Shape whole = {12, 8},
                 const std::string& name = "decoder.w", std::uint64_t seed = 1234,
                 DType dtype = DType::kF32) {
  Parameter parameter(name, shape, dtype, Layout::kShard0);
  initialize_normal(parameter, seed, whole, row0, col0, 1.0);
  return parameter;
}

TEST(CounterHash, HasThePublishedValues) {
  EXPECT_EQ(mix(0), 0xE220A8397B1DCDAFU);  // first output of splitmix64 from seed 0
  EXPECT_EQ(hash_text(""), 0xCBF29CE484222325U);
  EXPECT_EQ(hash_text("a"), 0xAF63DC4C8601EC8CU);
  EXPECT_EQ(hash_text("foobar"), 0x85944171F73967E8U);
  EXPECT_EQ(uniform(0), 0);
  EXPECT_LT(uniform(~std::uint64_t{0}), 1);
  EXPECT_NE(hash_words(1, 2), hash_words(2, 1));
}

TEST(Parameter, KeepsMasterAndGradientInAWideType) {
  for (const auto& [compute, wide] :
       {std::pair{DType::kF64, DType::kF64}, {DType::kF32, DType::kF32}, {DType::kBF16, DType::kF32}}) {
    const Parameter parameter("w", {3, 4}, compute, Layout::kShard1);
    EXPECT_EQ(parameter.name, "w");
    EXPECT_EQ(parameter.master.dtype(), wide);
    EXPECT_EQ(parameter.gradient.dtype(), wide);
    EXPECT_EQ(parameter.compute.dtype(), compute);
    EXPECT_EQ(parameter.compute.shape(), (Shape{3, 4}));
    EXPECT_EQ(parameter.layout, Layout::kShard1);
    EXPECT_FALSE(parameter.reduce_gradient_over_tp);
  }
  EXPECT_THROW(Parameter("w", {3}, DType::kF16, Layout::kReplicated), Error);
  EXPECT_THROW(Parameter("w", {3}, DType::kE4M3, Layout::kReplicated), Error);
}

TEST(Parameter, ComputeCopyIsTheMasterRounded) {
  Parameter parameter("w", {2}, DType::kBF16, Layout::kReplicated);
  parameter.master.values<float>()[0] = 1 + 0x1p-8F;  // a tie, to even
  parameter.master.values<float>()[1] = 1 + 0x3p-8F;
  parameter.refresh_compute();
  EXPECT_EQ(to_doubles(parameter.compute.view()), (std::vector<double>{1, 1 + 0x1p-6}));
}

TEST(Parameter, ConstantsReachTheComputeCopy) {
  Parameter parameter("w", {3}, DType::kBF16, Layout::kReplicated);
  initialize_constant(parameter, 0.5);
  EXPECT_THAT(to_doubles(parameter.master.view()), Each(0.5));
  EXPECT_THAT(to_doubles(parameter.compute.view()), Each(0.5));
}

TEST(Parameter, GradientCanBeZeroed) {
  Parameter parameter("w", {3}, DType::kF32, Layout::kReplicated);
  for (float& value : parameter.gradient.values<float>()) value = std::numeric_limits<float>::quiet_NaN();
  parameter.zero_gradient();
  EXPECT_THAT(to_doubles(parameter.gradient.view()), Each(0));
}

TEST(InitializeNormal, HasTheValuesOfItsFormula) {
  // From an independent calculation of the hash chain and Box-Muller's formula, seed 1234, "decoder.w".
  const auto values =
      to_doubles(normal({12, 8}, 0, 0, {12, 8}, "decoder.w", 1234, DType::kF64).master.view());
  EXPECT_NEAR(values[0], 1.189408002780417, 1e-14);
  EXPECT_NEAR(values[1], -0.5324779486484398, 1e-14);
  EXPECT_NEAR(values[5], -0.3523754337056596, 1e-14);
  EXPECT_NEAR(values[11], 0.8009850711302298, 1e-14);
}

TEST(InitializeNormal, ShardsAreThePartsOfTheWhole) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16}) {
    const Parameter whole = normal({12, 8}, 0, 0, {12, 8}, "w", 9, dtype);
    for (const std::int64_t ranks : {1, 2, 4}) {
      std::vector<Tensor> by_rows;
      std::vector<Tensor> by_columns;
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        by_rows.push_back(
            normal({12 / ranks, 8}, rank * 12 / ranks, 0, {12, 8}, "w", 9, dtype).master.clone());
        by_columns.push_back(
            normal({12, 8 / ranks}, 0, rank * 8 / ranks, {12, 8}, "w", 9, dtype).compute.clone());
      }
      EXPECT_EQ(bits(below(by_rows).view()), bits(whole.master.view()));
      EXPECT_EQ(bits(beside(by_columns).view()), bits(whole.compute.view()));
    }
  }
}

TEST(InitializeNormal, IsNormalWithTheGivenSpread) {
  constexpr double kStd = 0.02;
  Parameter parameter("w", {512, 256}, DType::kF32, Layout::kReplicated);
  initialize_normal(parameter, 77, {512, 256}, 0, 0, kStd);
  const auto values = to_doubles(parameter.master.view());
  const auto count = static_cast<double>(values.size());
  double mean = 0;
  for (const double value : values) mean += value / kStd;
  mean /= count;
  double second = 0, fourth = 0, neighbours = 0, outside = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double z = values[i] / kStd - mean;
    second += z * z;
    fourth += z * z * z * z;
    outside += std::abs(z) > 2 ? 1 : 0;
    if (i > 0) neighbours += z * (values[i - 1] / kStd - mean);
  }
  // Five standard errors of each estimate.
  EXPECT_NEAR(mean, 0, 5 / std::sqrt(count));
  EXPECT_NEAR(second / count, 1, 5 * std::sqrt(2 / count));
  EXPECT_NEAR(fourth / count, 3, 5 * std::sqrt(96 / count));
  EXPECT_NEAR(outside / count, 0.0455, 5 * std::sqrt(0.0455 / count));
  EXPECT_NEAR(neighbours / count, 0, 5 / std::sqrt(count));
}

TEST(InitializeNormal, SeedsAndNamesGiveOtherNumbers) {
  const auto values = bits(normal({12, 8}).master.view());
  EXPECT_EQ(bits(normal({12, 8}).master.view()), values);
  EXPECT_NE(bits(normal({12, 8}, 0, 0, {12, 8}, "decoder.w", 1235).master.view()), values);
  EXPECT_NE(bits(normal({12, 8}, 0, 0, {12, 8}, "decoder.v").master.view()), values);
}

TEST(InitializeNormal, RefusesASliceOutsideTheWhole) {
  try {
    (void)normal({6, 8}, 7, 0);
    ADD_FAILURE() << "rows 7 to 12 of 12";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTensor);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("decoder.w"), HasSubstr("[6, 8]"), HasSubstr("[12, 8]")));
  }
  EXPECT_THROW((void)normal({12, 4}, 0, 5), Error);
  EXPECT_THROW((void)normal({12, 4}, -1, 0), Error);
  Parameter parameter("w", {2}, DType::kF32, Layout::kReplicated);
  EXPECT_THROW(initialize_normal(parameter, 1, {2}, 0, 0, -1), Error);
  EXPECT_THROW(initialize_normal(parameter, 1, {2}, 0, 0, std::numeric_limits<double>::quiet_NaN()), Error);
}

}  // namespace
}  // namespace amaxscope::megatron
