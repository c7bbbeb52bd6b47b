// FP8 block scaling against the definition, worked in double with the test's own tables.
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "tests/kernels/block_support.hpp"

namespace amaxscope::test {
namespace {

struct Case {
  DType format;
  bool two_dimensional;
  bool power_of_two;
};

Both quantized(const TensorView& x, const Case& c, float epsilon = 0.0F) {
  Both result{{fp8_block_layout(c.format, false, c.two_dimensional), x},
              {fp8_block_layout(c.format, true, c.two_dimensional), x}};
  quantize_fp8_blocks(x, {.power_of_two = c.power_of_two, .epsilon = epsilon}, c.two_dimensional,
                      {.rowwise = result.rowwise.output(), .columnwise = result.columnwise.output()});
  return result;
}

float scale_of(float amax, const Case& c, float largest) {
  const double maximum = c.format == DType::kE4M3 ? 448.0 : 57344.0;
  if (amax == 0.0F || std::isinf(amax)) return 1.0F;
  const double quotient = maximum / static_cast<double>(amax);
  // Rounding to 53 bits first does not change what 24 bits give.
  float scale = quotient > 3.4028235677973362e38 ? largest : static_cast<float>(quotient);
  if (c.power_of_two) scale = std::ldexp(1.0F, std::ilogb(scale));
  return scale;
}

class Fp8Blocks : public testing::TestWithParam<Case> {};

TEST_P(Fp8Blocks, IsTheDefinitionInBothDirectionsWithCutBlocks) {
  const Case c = GetParam();
  const std::int64_t rows = 131;
  const std::int64_t cols = 261;
  const Tensor x = matrix_of(hard_values(rows, cols, 7), rows, cols);
  const Both q = quantized(x, c);
  const MinifloatGrid grid = grid_of(c.format);
  const Amaxes by_row(x, c.two_dimensional ? 128 : 1, 128);
  const Amaxes by_column(x, 128, c.two_dimensional ? 128 : 1);
  for (std::int64_t m = 0; m < rows; ++m) {
    for (std::int64_t k = 0; k < cols; ++k) {
      const std::int64_t i = m / 128;
      const std::int64_t j = k / 128;
      const float row_scale = scale_of(by_row.of(m, k), c, 0x1.FFFFFEp127F);
      const float column_scale = scale_of(by_column.of(m, k), c, 0x1.FFFFFEp127F);
      const auto inverse = [](float scale) { return static_cast<float>(1.0 / static_cast<double>(scale)); };
      // 1D: [ceil(K/128), up(M,4)] and [ceil(M/128), up(K,4)]; 2D: [2, up(3,4)] and [3, up(2,4)].
      const std::int64_t row_index = c.two_dimensional ? i * 4 + j : j * 132 + m;
      const std::int64_t column_index = c.two_dimensional ? j * 4 + i : i * 264 + k;
      ASSERT_EQ(q.rowwise.scale_bits(row_index), bits_of(inverse(row_scale))) << m << ' ' << k;
      ASSERT_EQ(q.columnwise.scale_bits(column_index), bits_of(inverse(column_scale))) << m << ' ' << k;
      ASSERT_EQ(q.rowwise.codes.values<std::uint8_t>()[static_cast<std::size_t>(m * cols + k)],
                grid.encode(at(x, m, k) * row_scale));
      ASSERT_EQ(q.columnwise.codes.values<std::uint8_t>()[static_cast<std::size_t>(k * rows + m)],
                grid.encode(at(x, m, k) * column_scale));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, Fp8Blocks,
                         testing::Values(Case{DType::kE4M3, false, true}, Case{DType::kE4M3, true, true},
                                         Case{DType::kE4M3, false, false}, Case{DType::kE5M2, true, false},
                                         Case{DType::kE5M2, false, true}));

TEST(Fp8BlockKernel, PowerOfTwoScalesMapTheAmaxIntoTheUpperHalf) {
  const Tensor x = sample_tensor({8, 256}, 5);
  const Both q = quantized(x, {DType::kE4M3, false, true});
  for (std::int64_t m = 0; m < 8; ++m) {
    for (std::int64_t j = 0; j < 2; ++j) {
      const double amax = static_cast<double>(amax_of(x, m, 1, j * 128, 128));
      const double mapped = amax / static_cast<double>(q.rowwise.view().scale(m, j));
      EXPECT_GT(mapped, 224.0);
      EXPECT_LE(mapped, 448.0);
    }
  }
}

TEST(Fp8BlockKernel, AScaleThatOverflowsIsTheInputTypesLargestValue) {
  std::vector<float> tiny = {0x1p-133F, 0.0F, 0.0F, 0.0F};
  const Tensor f32 = matrix_of(tiny, 1, 4);
  const Both plain = quantized(f32, {DType::kE4M3, true, false});
  EXPECT_EQ(plain.rowwise.view().scale(0, 0), static_cast<float>(1.0 / 0x1.FFFFFEp127));
  const Both bf16 = quantized(converted(f32, DType::kBF16), {DType::kE4M3, true, false});
  EXPECT_EQ(bf16.rowwise.view().scale(0, 0), static_cast<float>(1.0 / 0x1.FEp127));
  const Both power = quantized(f32, {DType::kE4M3, true, true});
  EXPECT_EQ(power.rowwise.view().scale(0, 0), 0x1p-127F);
}

TEST(Fp8BlockKernel, EpsilonRaisesTheAmaxAlsoOfAZeroBlock) {
  const Tensor x = matrix_of({1.0F, -2.0F, 0.0F, 0.5F}, 1, 4);
  EXPECT_EQ(quantized(x, {DType::kE4M3, true, false}, 4.0F).rowwise.view().scale(0, 0), 1.0F / 112.0F);
  EXPECT_EQ(quantized(matrix_of({0, 0}, 1, 2), {DType::kE4M3, true, false}, 4.0F).rowwise.view().scale(0, 0),
            1.0F / 112.0F);
  EXPECT_EQ(quantized(matrix_of({0, 0}, 1, 2), {DType::kE4M3, true, false}).rowwise.view().scale(0, 0), 1.0F);
}

}  // namespace
}  // namespace amaxscope::test
