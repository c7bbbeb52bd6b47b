// The device path on a real device: codes of every bf16 and fp16 number through the device's conversions,
// and quantizers. Skipped without a device.
#include "kernels/cast.hpp"
#include "runtime/quantizers/quantizer_factory.hpp"
#include "tests/device/gpu_fixture.hpp"
#include "tests/kernels/values.hpp"

namespace amaxscope::testing {
namespace {

TEST_F(Gpu, EveryNumberOfSixteenBitsHasTheCodeOfTheCpu) {
  for (const DType type : {DType::kBF16, DType::kF16}) {
    Tensor x(type, {65536});
    auto* const bits = static_cast<std::uint16_t*>(x.mutable_view().data());
    for (std::size_t i = 0; i < 65536; ++i) bits[i] = static_cast<std::uint16_t>(i);
    const Tensor there = put(x.view());
    for (const DType format : {DType::kE4M3, DType::kE5M2}) {
      for (const float scale : {1.0F, 0x1p-9F, 3.0F}) {
        const Tensor factor = Tensor::of({scale}, {1});
        Tensor expected(format, {65536});
        cast_to_fp8(x, factor, expected);
        Tensor actual = tensor(format, {65536});
        cast_to_fp8(there, put(factor.view()), actual);
        EXPECT_EQ(bytes_of(actual.view()), bytes_of(expected.view()))
            << to_string(type) << ' ' << to_string(format);
      }
    }
  }
}

TEST_F(Gpu, SinglesOfEveryExponentHaveTheCodeOfTheCpu) {
  // All signs and exponents with the 13 highest bits of the mantissa, and the two neighbours of each: every
  // tie.
  Tensor x(DType::kF32, {3 << 22});
  auto* const bits = static_cast<std::uint32_t*>(x.mutable_view().data());
  for (std::uint32_t i = 0; i < 1U << 22; ++i) {
    for (std::uint32_t k = 0; k < 3; ++k) bits[3 * i + k] = (i << 10) + k - 1;
  }
  const Tensor there = put(x.view());
  const Tensor factor = Tensor::of({1.0F}, {1});
  for (const DType format : {DType::kE4M3, DType::kE5M2}) {
    Tensor expected(format, x.shape());
    cast_to_fp8(x, factor, expected);
    Tensor actual = tensor(format, x.shape());
    cast_to_fp8(there, put(factor.view()), actual);
    EXPECT_EQ(bytes_of(actual.view()), bytes_of(expected.view())) << to_string(format);
  }
}

TEST_F(Gpu, QuantizersMakeTheCodesOfTheCpu) {
  const Tensor x = test::converted(test::sample_tensor({256, 384}, 11), DType::kBF16);
  const Tensor there = put(x.view());
  for (const RecipeKind recipe :
       {RecipeKind::kCurrent, RecipeKind::kMxfp8, RecipeKind::kBlock, RecipeKind::kNvfp4}) {
    for (const TensorKind kind : {TensorKind::kActivation, TensorKind::kWeight, TensorKind::kGradient}) {
      const QuantizerRequest request{.recipe = recipe, .tensor = kind, .name = "fc1"};
      const auto expected = make_quantizer(request)->quantize(x.view(), {true, true}, {});
      const auto actual = make_quantizer(request)->quantize(there.view(), {true, true}, {});
      for (const Direction direction : {Direction::kRowwise, Direction::kColumnwise}) {
        EXPECT_EQ(bytes_of(actual->operand(direction).data), bytes_of(expected->operand(direction).data))
            << to_string(recipe) << ' ' << to_string(kind) << ' ' << to_string(direction);
        EXPECT_EQ(bytes_of(actual->dequantize(DType::kF32, direction).view()),
                  bytes_of(expected->dequantize(DType::kF32, direction).view()))
            << to_string(recipe) << ' ' << to_string(kind) << ' ' << to_string(direction);
      }
    }
  }
}

}  // namespace
}  // namespace amaxscope::testing
