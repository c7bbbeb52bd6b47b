#include "megatron/ops/elementwise.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "core/error.hpp"
#include "tests/megatron/tensors.hpp"

namespace amaxscope::megatron {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace amaxscope::megatron::testing;

TEST(Elementwise, AddsInPlace) {
  const Tensor x = Tensor::of<float>({1, -2, 0.5F}, {3});
  Tensor y = Tensor::of<float>({10, 20, 30}, {3});
  add(x.view(), y);
  EXPECT_THAT(to_doubles(y.view()), ElementsAre(11, 18, 30.5));
}

TEST(Elementwise, SumOfBf16IsRoundedOnceToEven) {
  // 1 + 2^-8 lies half way between 1 and 1 + 2^-7, 1 + 3 * 2^-8 between 1 + 2^-7 and 1 + 2^-6.
  const Tensor x = converted(Tensor::of<float>({0x1p-8F, 0x3p-8F, 0x1p-8F}, {3}).view(), DType::kBF16);
  Tensor y = converted(Tensor::of<float>({1, 1, -1}, {3}).view(), DType::kBF16);
  add(x.view(), y);
  EXPECT_THAT(to_doubles(y.view()), ElementsAre(1, 1 + 0x1p-6, -1 + 0x1p-8));
}

TEST(Elementwise, APerturbationIsOneMoreRounding) {
  std::vector<float> ones(4096);
  for (std::size_t i = 0; i < ones.size(); ++i) ones[i] = 1.0F + static_cast<float>(i) * 0x1p-12F;  // [1, 2)
  const auto perturbed = [&](std::uint64_t seed) {
    Tensor y = Tensor::of<float>(std::span<const float>(ones), {4096});
    perturb(seed, 0x1p-24, y.mutable_view());
    return to_doubles(y.view());
  };
  const auto once = perturbed(7);
  int up = 0;
  int down = 0;
  for (std::size_t i = 0; i < ones.size(); ++i) {
    // Half a unit in the last place is 2^-24; m u r goes past it for m |r| > 1.
    const double steps = (once[i] - static_cast<double>(ones[i])) * 0x1p23;
    ASSERT_TRUE(steps == 0 || std::abs(steps) == 1 || (i == 0 && steps == -0.5)) << i << ' ' << steps;
    up += static_cast<int>(steps > 0);
    down += static_cast<int>(steps < 0);
  }
  // The integral of 1 - 1/m over [1, 2) is 1 - ln 2 = 0.307: 1257 of 4096, with a deviation of some 30.
  EXPECT_NEAR(up + down, 1257, 150);
  EXPECT_NEAR(up, down, 200);
  EXPECT_EQ(perturbed(7), once) << "a pure function";
  EXPECT_NE(perturbed(8), once);
}

TEST(Elementwise, APerturbationOfBf16) {
  const std::vector<float> same(1000, 1.9921875F);
  Tensor y = converted(Tensor::of<float>(std::span<const float>(same), {1000}).view(), DType::kBF16);
  perturb(1, unit_roundoff(DType::kBF16), y.mutable_view());
  int moved = 0;
  for (const double value : to_doubles(y.view())) {
    ASSERT_LE(std::abs(value - 1.9921875), 0x1p-7);
    moved += static_cast<int>(value != 1.9921875);
  }
  EXPECT_NEAR(moved, 498, 100);  // 1 - 1/1.9921875 of them
}

TEST(Elementwise, AddsABiasToEveryRow) {
  const Tensor bias = Tensor::of<double>({1, 2}, {2});
  Tensor y = Tensor::of<double>({10, 20, 30, 40, 50, 60}, {3, 1, 2});
  add_bias(bias.view(), y);
  EXPECT_THAT(to_doubles(y.view()), ElementsAre(11, 22, 31, 42, 51, 62));
}

TEST(Elementwise, BiasGradientIsAddedToWhatIsThere) {
  const Tensor dy = Tensor::of<float>({1, 2, 3, 4, 5, 6}, {3, 2});
  Tensor dbias = Tensor::of<float>({100, 200}, {2});
  bias_gradient(dy.view(), dbias);
  EXPECT_THAT(to_doubles(dbias.view()), ElementsAre(109, 212));
}

TEST(Elementwise, BiasGradientIsSummedInDouble) {
  // In fp32, 2^24 + 1 stays 2^24, however often.
  Tensor dy(DType::kF32, {17, 1});
  for (float& value : dy.values<float>()) value = 1;
  dy.values<float>()[0] = 0x1p24F;
  Tensor dbias(DType::kF32, {1});
  bias_gradient(dy.view(), dbias);
  EXPECT_THAT(to_doubles(dbias.view()), ElementsAre(0x1p24 + 16));
}

TEST(Elementwise, BiasGradientOfBf16IsKeptInF32) {
  const Tensor dy = converted(Tensor::of<float>({256, 1}, {2, 1}).view(), DType::kBF16);
  Tensor dbias(DType::kF32, {1});
  bias_gradient(dy.view(), dbias);
  EXPECT_THAT(to_doubles(dbias.view()), ElementsAre(257));
}

TEST(Elementwise, ScaleIsRoundedOnce) {
  Tensor y = Tensor::of<float>({3, -6, 0}, {3});
  scale(1.0 / 3.0, y);
  EXPECT_THAT(to_doubles(y.view()), ElementsAre(1, -2, 0));
  // 1 * factor is just above the middle of 1 and 1 + 2^-7; by way of fp32 it would become the middle, and
  // then 1.
  Tensor narrow = converted(Tensor::of<float>({1}, {1}).view(), DType::kBF16);
  scale(1 + 0x1p-8 + 0x1p-40, narrow);
  EXPECT_THAT(to_doubles(narrow.view()), ElementsAre(1 + 0x1p-7));
}

TEST(Elementwise, EmptyTensorsAreNoError) {
  const Tensor x(DType::kF32, {0, 4});
  Tensor y(DType::kF32, {0, 4});
  Tensor dbias = Tensor::of<float>({1, 2, 3, 4}, {4});
  add(x.view(), y);
  scale(2, y);
  bias_gradient(x.view(), dbias);
  EXPECT_THAT(to_doubles(dbias.view()), ElementsAre(1, 2, 3, 4));
}

template <class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTensor);
    return error.what();
  }
  return "no error";
}

TEST(Elementwise, WrongViewsAreErrorsThatNameThem) {
  Tensor y(DType::kF32, {2, 3});
  EXPECT_THAT(error_of([&] {
                add(Tensor(DType::kF32, {3, 2}).view(), y);
              }),
              AllOf(HasSubstr("add: x"), HasSubstr("[3, 2]"), HasSubstr("[2, 3]")));
  EXPECT_THAT(error_of([&] {
                add(Tensor(DType::kF64, {2, 3}).view(), y);
              }),
              AllOf(HasSubstr("f64"), HasSubstr("f32")));
  EXPECT_THAT(error_of([&] { add_bias(Tensor(DType::kF32, {2}).view(), y); }), HasSubstr("add_bias: bias"));
  Tensor f32_bias(DType::kF32, {3});
  EXPECT_THAT(error_of([&] {
                bias_gradient(Tensor(DType::kF64, {2, 3}).view(), f32_bias);
              }),
              AllOf(HasSubstr("dbias is f32"), HasSubstr("wanted f64")));
  Tensor half(DType::kF16, {2});
  EXPECT_THAT(error_of([&] { scale(2, half); }),
              AllOf(HasSubstr("scale: y is f16"), HasSubstr("f64, f32 and bf16")));
  const TensorView padded(y.view().data(), DType::kF32, {2, 2}, {}, {}, 3);
  Tensor small(DType::kF32, {2, 2});
  EXPECT_THAT(error_of([&] { add(padded, small); }), HasSubstr("row stride 3"));
}

}  // namespace
}  // namespace amaxscope::megatron
