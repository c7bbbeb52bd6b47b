#include "kernels/amax.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/error.hpp"
#include "tests/kernels/values.hpp"

namespace amaxscope::test {
namespace {

std::uint32_t amax_of(std::initializer_list<float> values) {
  return amax_bits(Tensor::of<float>(values, {static_cast<std::int64_t>(values.size())}));
}

TEST(Amax, LargestMagnitudeAsBits) {
  EXPECT_EQ(amax_of({1, -3, 2}), bits_of(3.0F));
  EXPECT_EQ(amax_of({-0.0F, 0.0F}), 0U);
  EXPECT_EQ(amax_of({kDenormal, -kDenormal}), 1U);
}

TEST(Amax, IgnoresNaNAndKeepsInfinity) {
  EXPECT_EQ(amax_of({1, kNaN, -2, -kNaN, from_bits(0x7F800001)}), bits_of(2.0F));
  EXPECT_EQ(amax_of({kNaN, kNaN}), 0U);
  EXPECT_EQ(amax_of({1, -kInf, kNaN}), 0x7F800000U);
}

TEST(Amax, OfNothingIsZero) {
  EXPECT_EQ(amax_bits(TensorView(nullptr, DType::kF32, {0, 8})), 0U);
  EXPECT_EQ(amax_bits(TensorView(nullptr, DType::kBF16, {8, 0})), 0U);
  EXPECT_EQ(amax_bits(TensorView(nullptr, DType::kF16, {0, 8}, {}, {}, 16)), 0U);
}

TEST(Amax, EveryPositionAndLengthIsSeen) {
  for (std::int64_t length = 1; length <= 70; ++length) {
    for (std::int64_t position = 0; position < length; ++position) {
      std::vector<float> values(static_cast<std::size_t>(length), 0.5F);
      values[static_cast<std::size_t>(position)] = -8;
      const Tensor x = Tensor::of<float>(std::span<const float>(values), {length});
      ASSERT_EQ(amax_bits(x), bits_of(8.0F)) << length << " " << position;
      ASSERT_EQ(amax_bits(converted(x, DType::kBF16)), bits_of(8.0F)) << length << " " << position;
    }
  }
}

TEST(Amax, HalfTypesGiveTheBitsOfTheirFp32Values) {
  EXPECT_EQ(amax_bits(Tensor::of<BF16>({{0xC049}, {0x7FC0}, {0xFFFF}}, {3})), 0x40490000U);
  EXPECT_EQ(amax_bits(Tensor::of<BF16>({{0xFF80}, {0x0000}}, {2})), 0x7F800000U);
  EXPECT_EQ(amax_bits(Tensor::of<BF16>({{0x8001}}, {1})), 0x00010000U);
  EXPECT_EQ(amax_bits(Tensor::of<F16>({{0xC200}, {0x7E00}, {0x3C00}}, {3})), bits_of(3.0F));
  EXPECT_EQ(amax_bits(Tensor::of<F16>({{0xFC00}}, {1})), 0x7F800000U);
  EXPECT_EQ(amax_bits(Tensor::of<F16>({{0x8001}}, {1})), bits_of(0x1p-24F));
}

TEST(Amax, PaddingIsNotRead) {
  const PaddedMatrix<float> x({1, 2, 3, 4, 5, 6, 7, 8, 9, -10, 11, 12}, {3, 4}, 8, kInf);
  EXPECT_EQ(amax_bits(x.view()), bits_of(12.0F));
}

TEST(Amax, WritesOrAccumulates) {
  Tensor out = Tensor::of<std::uint32_t>({bits_of(5.0F)}, {1});
  const Tensor x = Tensor::of<float>({-2, 1}, {2});
  amax(x, out, /*accumulate=*/true);
  EXPECT_EQ(out.values<std::uint32_t>()[0], bits_of(5.0F));
  amax(x, out);
  EXPECT_EQ(out.values<std::uint32_t>()[0], bits_of(2.0F));
  amax(Tensor::of<float>({7}, {1}), out, /*accumulate=*/true);
  EXPECT_EQ(out.values<std::uint32_t>()[0], bits_of(7.0F));
  amax(TensorView(nullptr, DType::kF32, {0}), out);
  EXPECT_EQ(out.values<std::uint32_t>()[0], 0U);
}

TEST(Amax, RefusesOtherTypesAndShapes) {
  const Tensor x = Tensor::of<float>({1}, {1});
  Tensor wrong(DType::kF32, {1});
  Tensor two(DType::kU32, {2});
  EXPECT_THROW(amax(x, wrong), Error);
  EXPECT_THROW(amax(x, two), Error);
  try {
    amax_bits(Tensor(DType::kE4M3, {2, 2}));
    FAIL() << "codes were accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTensor);
    EXPECT_STREQ(error.what(), "amax: x is e4m3 of shape [2, 2]; allowed are f32, f16 and bf16");
  }
  const float value = 1;
  EXPECT_THROW(amax_bits(TensorView(&value, DType::kF32, {1}, {DeviceKind::kCuda, 0})), Error);
}

}  // namespace
}  // namespace amaxscope::test
