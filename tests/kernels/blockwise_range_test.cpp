#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/error.hpp"
#include "kernels/tensor_stats.hpp"
#include "tests/kernels/values.hpp"

namespace amaxscope::test {
namespace {

double range_of(std::initializer_list<float> values, Shape shape, int block, int dims = 1,
                bool both = false) {
  return max_blockwise_dynamic_range(Tensor::of<float>(values, shape), block, dims, both);
}

/// The definition, block by block.
double reference(const std::vector<float>& values, std::int64_t rows, std::int64_t cols,
                 std::int64_t block_rows, std::int64_t block_cols) {
  double result = 0;
  for (std::int64_t row = 0; row < rows; row += block_rows) {
    for (std::int64_t col = 0; col < cols; col += block_cols) {
      double largest = 0;
      double smallest = std::numeric_limits<double>::infinity();
      for (std::int64_t i = row; i < std::min(row + block_rows, rows); ++i) {
        for (std::int64_t j = col; j < std::min(col + block_cols, cols); ++j) {
          const double magnitude =
              std::abs(static_cast<double>(values[static_cast<std::size_t>(i * cols + j)]));
          if (magnitude == 0) continue;
          largest = std::max(largest, magnitude);
          smallest = std::min(smallest, magnitude);
        }
      }
      if (largest > 0) result = std::max(result, std::log2(largest) - std::log2(smallest));
    }
  }
  return result;
}

TEST(BlockwiseRange, WorkedNumbers) {
  EXPECT_DOUBLE_EQ(range_of({1, -20, 0, 5}, {4}, 4), std::log2(20.0));
  EXPECT_EQ(range_of({1, -20, 0, 5}, {4}, 1), 0.0);
  EXPECT_DOUBLE_EQ(range_of({1, -20, 0, 5}, {4}, 2), std::log2(20.0));
  EXPECT_EQ(range_of({8, 16, 1, 1}, {4}, 2), 1.0);
}

TEST(BlockwiseRange, ZeroBlocksHaveNone) {
  EXPECT_EQ(range_of({0, 0, -0.0F, 0}, {2, 2}, 2), 0.0);
  EXPECT_EQ(range_of({0, 0, 8, 16}, {4}, 2), 1.0);
  EXPECT_EQ(max_blockwise_dynamic_range(TensorView(nullptr, DType::kF32, {0, 8}), 32, 1, true), 0.0);
  EXPECT_EQ(max_blockwise_dynamic_range(TensorView(nullptr, DType::kF32, {8, 0}), 32, 2, true), 0.0);
}

/// Rows of 40 in blocks of 32: the second block of a row has 8 elements and does not reach into the next row.
TEST(BlockwiseRange, LastBlockOfARowIsShorter) {
  std::vector<float> values(5 * 40, 1.0F);
  const auto tensor = [&] { return Tensor::of<float>(std::span<const float>(values), {5, 40}); };
  for (std::size_t i = 32; i < 40; ++i) values[i] = 0x1p-10F;
  EXPECT_EQ(max_blockwise_dynamic_range(tensor(), 32, 1, false), 0.0);
  values[39] = 20 * 0x1p-10F;
  EXPECT_DOUBLE_EQ(max_blockwise_dynamic_range(tensor(), 32, 1, false), std::log2(20.0));
}

TEST(BlockwiseRange, OrientationsAndTiles) {
  // Rows are constant, columns are not.
  EXPECT_EQ(range_of({1, 1, 16, 16}, {2, 2}, 2), 0.0);
  EXPECT_EQ(range_of({1, 1, 16, 16}, {2, 2}, 2, 1, true), 4.0);
  EXPECT_EQ(range_of({1, 1, 16, 16}, {2, 2}, 2, 2), 4.0);
  // 3 x 3 in tiles of 2: the corner tile is a single element, the edge tiles are 2 x 1 and 1 x 2.
  EXPECT_EQ(range_of({1, 1, 64, 1, 1, 32, 8, 2, 512}, {3, 3}, 2, 2), 2.0);
}

/// log2(max) - log2(min) as the reference has it: Inf - finite, Inf - Inf, and whatever a NaN is in.
TEST(BlockwiseRange, InfBesideFiniteElementsIsAnInfiniteRange) {
  EXPECT_EQ(range_of({kInf, 2, 1, 1}, {4}, 2), double{kInf});
  EXPECT_EQ(range_of({1, 1, 1, -kInf}, {2, 2}, 2, 2), double{kInf});
  EXPECT_EQ(range_of({kInf, 2, 1, 4}, {2, 2}, 2, 1, true), double{kInf});
}

TEST(BlockwiseRange, NaNOrInfAloneIsNaN) {
  EXPECT_TRUE(std::isnan(range_of({1, 2, kNaN, 1}, {4}, 2)));
  EXPECT_TRUE(std::isnan(range_of({1, 2, kInf, -kInf}, {4}, 2)));
  EXPECT_TRUE(std::isnan(range_of({1, 2, 0, kInf}, {4}, 2))) << "zeros do not count";
  EXPECT_TRUE(std::isnan(range_of({kInf, 2, kNaN, 1}, {4}, 2))) << "NaN wins over Inf";
  EXPECT_TRUE(std::isnan(range_of({kNaN, 1, kInf, 2}, {4}, 2))) << "in any order";
  EXPECT_TRUE(std::isnan(range_of({1, 1, 1, kNaN}, {2, 2}, 2, 1, true)));
  // Columns [Inf Inf] and [2 2]: each row is Inf beside a finite element, a column is Inf alone.
  EXPECT_TRUE(std::isnan(range_of({kInf, 2, kInf, 2}, {2, 2}, 2, 1, true)));
}

TEST(BlockwiseRange, SubnormalsAndTheWholeRangeOfFp32) {
  EXPECT_EQ(range_of({0x1p127F, kDenormal}, {2}, 2), 276.0);
  EXPECT_EQ(range_of({kDenormal, 4 * kDenormal, 0}, {3}, 3), 2.0);
}

TEST(BlockwiseRange, EqualsTheDefinition) {
  for (const Shape& shape : {Shape{5, 40}, Shape{33, 129}, Shape{1, 1}, Shape{64, 64}, Shape{3, 2, 50}}) {
    const std::int64_t rows = shape.rows();
    const std::int64_t cols = shape.cols();
    const std::vector<float> values = sample(shape.numel(), 21);
    const Tensor x = Tensor::of<float>(std::span<const float>(values), shape);
    for (const int block : {1, 7, 32, 128}) {
      const double rowwise = reference(values, rows, cols, 1, block);
      const double columnwise = reference(values, rows, cols, block, 1);
      const double tiles = reference(values, rows, cols, block, block);
      EXPECT_NEAR(max_blockwise_dynamic_range(x, block, 1, false), rowwise, 1e-12);
      EXPECT_NEAR(max_blockwise_dynamic_range(x, block, 1, true), std::max(rowwise, columnwise), 1e-12);
      EXPECT_NEAR(max_blockwise_dynamic_range(x, block, 2, false), tiles, 1e-12);
      EXPECT_NEAR(max_blockwise_dynamic_range(x, block, 2, true), tiles, 1e-12);
    }
  }
}

TEST(BlockwiseRange, HalfTypes) {
  const Tensor x = Tensor::of<BF16>({to_bf16(1.0F), to_bf16(-32.0F)}, {2});
  EXPECT_EQ(max_blockwise_dynamic_range(x, 2, 1, false), 5.0);
  EXPECT_EQ(max_blockwise_dynamic_range(converted(x, DType::kF16), 2, 1, false), 5.0);
}

TEST(BlockwiseRange, PaddingIsNotRead) {
  const PaddedMatrix<float> x({1, 2, 3, 4, 1, 8}, {3, 2}, 4, kNaN);
  EXPECT_EQ(max_blockwise_dynamic_range(x.view(), 32, 1, false), 3.0);
  EXPECT_EQ(max_blockwise_dynamic_range(x.view(), 32, 2, true), 3.0);
}

TEST(BlockwiseRange, RefusesOtherBlocksAndTypes) {
  const Tensor x = Tensor::of<float>({1, 2}, {2});
  EXPECT_THROW(max_blockwise_dynamic_range(x, 0, 1, false), Error);
  EXPECT_THROW(max_blockwise_dynamic_range(x, 32, 3, false), Error);
  EXPECT_THROW(max_blockwise_dynamic_range(Tensor(DType::kE4M3, {2}), 32, 1, false), Error);
}

}  // namespace
}  // namespace amaxscope::test
