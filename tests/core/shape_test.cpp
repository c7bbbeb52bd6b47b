#include "core/shape.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "core/error.hpp"

namespace amaxscope {
namespace {

TEST(Shape, RowsAndColsAreTheMatrixAKernelSees) {
  const Shape shape{2, 3, 5};
  EXPECT_EQ(shape.rank(), 3);
  EXPECT_EQ(shape.numel(), 30);
  EXPECT_EQ(shape.rows(), 6);
  EXPECT_EQ(shape.cols(), 5);
  EXPECT_EQ(shape[1], 3);
  EXPECT_EQ(to_string(shape), "[2, 3, 5]");
}

TEST(Shape, ScalarIsOneByOneAndVectorOneByN) {
  EXPECT_EQ(Shape{}.rank(), 0);
  EXPECT_EQ(Shape{}.numel(), 1);
  EXPECT_EQ(Shape{}.rows(), 1);
  EXPECT_EQ(Shape{}.cols(), 1);
  EXPECT_EQ(to_string(Shape{}), "[]");
  EXPECT_EQ(Shape{7}.rows(), 1);
  EXPECT_EQ(Shape{7}.cols(), 7);
}

TEST(Shape, ExtentsMayBeZero) {
  EXPECT_EQ((Shape{0, 8}.numel()), 0);
  EXPECT_EQ((Shape{0, 8}.rows()), 0);
  EXPECT_EQ((Shape{0, 8}.cols()), 8);
  EXPECT_EQ((Shape{8, 0}.rows()), 8);
  EXPECT_EQ((Shape{8, 0}.cols()), 0);
}

TEST(Shape, EqualityComparesRankAndExtents) {
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
  EXPECT_NE((Shape{2, 3}), (Shape{3, 2}));
  EXPECT_NE((Shape{6}), (Shape{1, 6}));
  EXPECT_NE((Shape{2}), (Shape{2, 0}));
}

TEST(Shape, RefusesNegativeExtents) {
  try {
    Shape{4, -1};
    FAIL() << "a negative extent was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTensor);
    EXPECT_STREQ(error.what(), "negative extent -1 in dimension 1");
  }
}

TEST(Shape, RefusesMoreThanSixDimensions) {
  const std::vector<std::int64_t> seven(7, 1);
  const std::vector<std::int64_t> six(6, 1);
  EXPECT_THROW(Shape{std::span(seven)}, Error);
  EXPECT_EQ(Shape{std::span(six)}.rank(), 6);
}

TEST(Shape, RefusesMoreThanTwoToThe62Elements) {
  constexpr std::int64_t kHalf = std::int64_t{1} << 31;
  EXPECT_EQ((Shape{kHalf, kHalf}.numel()), std::int64_t{1} << 62);
  EXPECT_THROW((Shape{kHalf, kHalf, 2}), Error);
  EXPECT_THROW((Shape{std::int64_t{1} << 62, 4}), Error);
}

}  // namespace
}  // namespace amaxscope
