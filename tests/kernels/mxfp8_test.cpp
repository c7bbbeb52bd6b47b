// MXFP8 against the definition, worked in double with the test's own tables.
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "tests/kernels/block_support.hpp"

namespace amaxscope::test {
namespace {

Both quantized(const TensorView& x, DType format, bool two_dimensional) {
  Both result{{mxfp8_layout(format, false, two_dimensional), x},
              {mxfp8_layout(format, true, two_dimensional), x}};
  quantize_mxfp8(x, two_dimensional,
                 {.rowwise = result.rowwise.output(), .columnwise = result.columnwise.output()});
  return result;
}

/// The smallest byte b with 2^(b-127) >= amax * fp32(1 / max), at most 254.
int scale_byte(float amax, DType format) {
  const float reciprocal = from_bits(format == DType::kE4M3 ? 0x3B124925U : 0x37924925U);
  const double wanted = static_cast<float>(static_cast<double>(amax) * static_cast<double>(reciprocal));
  int byte = 0;
  while (byte < 254 && std::ldexp(1.0, byte - 127) < wanted) ++byte;
  return byte;
}

std::uint8_t code_of(float x, int byte, DType format) {
  const auto scaled = static_cast<float>(static_cast<double>(x) * std::ldexp(1.0, 127 - byte));
  return grid_of(format).encode(scaled);
}

class Mxfp8 : public testing::TestWithParam<std::tuple<DType, bool>> {};

TEST_P(Mxfp8, IsTheDefinitionInBothDirections) {
  const auto [format, two_dimensional] = GetParam();
  const std::int64_t rows = 64;
  const std::int64_t cols = 160;
  const Tensor x = matrix_of(hard_values(rows, cols, 1), rows, cols);
  const Both q = quantized(x, format, two_dimensional);
  const Amaxes by_row(x, two_dimensional ? 32 : 1, 32);
  const Amaxes by_column(x, 32, two_dimensional ? 32 : 1);
  for (std::int64_t m = 0; m < rows; ++m) {
    for (std::int64_t k = 0; k < cols; ++k) {
      const std::int64_t i = m / 32;
      const std::int64_t j = k / 32;
      const int row_byte = scale_byte(by_row.of(m, k), format);
      const int column_byte = scale_byte(by_column.of(m, k), format);
      // Stored shapes: [up(64, 128), up(160/32, 4)] and [up(64/32, 4), up(160, 128)].
      ASSERT_EQ(q.rowwise.scale_bits(m * 8 + j), static_cast<unsigned>(row_byte)) << m << ' ' << k;
      ASSERT_EQ(q.columnwise.scale_bits(i * 256 + k), static_cast<unsigned>(column_byte)) << m << ' ' << k;
      const auto at_index = static_cast<std::size_t>(m * cols + k);
      ASSERT_EQ(q.rowwise.codes.values<std::uint8_t>()[at_index], code_of(at(x, m, k), row_byte, format));
      ASSERT_EQ(q.columnwise.codes.values<std::uint8_t>()[at_index],
                code_of(at(x, m, k), column_byte, format));
    }
  }
}

TEST_P(Mxfp8, DecodesToCodeTimesScale) {
  const auto [format, two_dimensional] = GetParam();
  const Tensor x = sample_tensor({64, 64}, 3);
  const Both q = quantized(x, format, two_dimensional);
  for (const Quantized* side : {&q.rowwise, &q.columnwise}) {
    Tensor values(DType::kF32, x.shape());
    dequantize_blocks(side->view(), values);
    const BlockScaledView view = side->view();
    for (std::int64_t m = 0; m < 64; ++m) {
      for (std::int64_t k = 0; k < 64; ++k) {
        const double expected =
            value_of_code(format, view.code(m, k)) *
            static_cast<double>(view.scale(m / view.layout.block_rows, k / view.layout.block_cols));
        ASSERT_EQ(static_cast<double>(at(values, m, k)), expected);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, Mxfp8,
                         testing::Combine(testing::Values(DType::kE4M3, DType::kE5M2), testing::Bool()));

TEST(Mxfp8Kernel, BytesOfWorkedBlocks) {
  std::vector<float> values(32 * 32, 0.0F);
  values[0] = 448.0F;  // row 0: exactly the largest code, scale 1
  values[1] = -1.0F;
  values[32] = 449.0F;         // row 1: just above, scale 2; 224.5 is nearest to 224
  values[2 * 32] = 0x1p-140F;  // row 2: RN(amax/448) is below 2^-127, byte 0; 2^-13 rounds to 0
  values[2 * 32 + 1] = 0x1p-134F;
  values[3 * 32] = kInf;  // row 3
  values[3 * 32 + 1] = 1.0F;
  for (std::size_t i = 0; i < 32; ++i) values[4 * 32 + i] = kNaN;
  const Tensor x = matrix_of(values, 32, 32);
  const Both q = quantized(x, DType::kE4M3, false);
  const auto codes = q.rowwise.codes.values<std::uint8_t>();
  const auto scales = q.rowwise.scales.values<std::uint8_t>();
  EXPECT_EQ(scales[0], 127);
  EXPECT_EQ(codes[0], 0x7E);
  EXPECT_EQ(codes[1], 0xB8);
  EXPECT_EQ(scales[4], 128);
  EXPECT_EQ(codes[32], 0x76) << "224";
  EXPECT_EQ(scales[8], 0);
  EXPECT_EQ(codes[64], 0x00) << "2^-140 * 2^127 is half of half the smallest code";
  EXPECT_EQ(codes[65], 0x04) << "2^-7 is four times 2^-9";
  EXPECT_EQ(scales[12], 254);
  EXPECT_EQ(codes[96], 0x7E);
  EXPECT_EQ(codes[97], 0x00) << "1 * 2^-127";
  EXPECT_EQ(scales[16], 0);
  EXPECT_EQ(codes[128], 0x7F) << "NaN elements stay visible";
  EXPECT_EQ(scales[20], 0) << "a zero block";
}

TEST(Mxfp8Kernel, AmaxOfTheLargestCodeTimesAPowerOfTwoGivesThatPower) {
  std::vector<float> values(32 * 32, 0.0F);
  for (int row = 0; row < 32; ++row)
    values[static_cast<std::size_t>(row) * 32] = std::ldexp(448.0F, row * 7 - 118);
  const Both q = quantized(matrix_of(values, 32, 32), DType::kE4M3, false);
  for (int row = 0; row < 32; ++row) {
    EXPECT_EQ(q.rowwise.scale_bits(row * 4), static_cast<unsigned>(row * 7 - 118 + 127)) << row;
  }
}

TEST(Mxfp8Kernel, OtherShapesAreRefused) {
  for (const Shape shape : {Shape{33, 32}, Shape{32, 48}}) {
    const Tensor x(DType::kF32, shape);
    Quantized out(mxfp8_layout(DType::kE4M3, false, false), x);
    EXPECT_THROW(quantize_mxfp8(x, false, {.rowwise = out.output()}), Error);
  }
  const Tensor x(DType::kF32, {32, 32});
  Quantized out(mxfp8_layout(DType::kE4M3, false, false), x);
  EXPECT_THROW(quantize_mxfp8(x, false, {}), Error) << "no direction";
  EXPECT_THROW(quantize_mxfp8(x, false, {.columnwise = out.output()}), Error)
      << "scales of the other direction";
}

}  // namespace
}  // namespace amaxscope::test
