// The error of a GEMM taken apart, by hand-worked numbers.
#include "kernels/gemm_error.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"
#include "tests/kernels/values.hpp"

namespace amaxscope {
namespace {

GemmOperand plain(const Tensor& tensor, bool transposed = false) { return {tensor.view(), transposed, 1.0F}; }

/// E4M3 codes; 0x30 is 0.5, 0x40 is 2.
Tensor codes(std::initializer_list<std::uint8_t> values, Shape shape) {
  Tensor result(DType::kE4M3, shape);
  std::ranges::copy(values, result.values<std::uint8_t>().begin());
  return result;
}

// A = 3 quantized to 4 = 2 * scale_inv 2, B = 5 quantized to 6 = 0.5 * 12: R = 15, a B = 20, A b = 18,
// a b = 24. The result is 24.5: E = 9.5 = 5 (a) + 3 (b) + 1 (rest) + 0.5 (accumulation).
TEST(GemmError, IsTakenApart) {
  const Tensor original_a = Tensor::of<float>({3}, {1, 1});
  const Tensor original_b = Tensor::of<float>({5}, {1, 1});
  const Tensor a = codes({0x40}, {1, 1});
  const Tensor b = codes({0x30}, {1, 1});
  const Tensor result = Tensor::of<float>({24.5F}, {1, 1});
  const GemmError error = gemm_error({a.view(), false, 2.0F}, {b.view(), false, 12.0F}, plain(original_a),
                                     plain(original_b), result.view());
  EXPECT_EQ(error.numel, 1U);
  EXPECT_EQ(error.nonfinite, 0U);
  EXPECT_EQ(error.error_squares, 9.5 * 9.5);
  EXPECT_EQ(error.reference_squares, 225.0);
  EXPECT_EQ(error.result_squares, 24.5 * 24.5);
  EXPECT_EQ(error.product, 15 * 24.5);
  EXPECT_EQ(error.error_reference, 15 * 9.5);
  EXPECT_EQ(error.from_a, 9.5 * 5);
  EXPECT_EQ(error.from_b, 9.5 * 3);
  EXPECT_EQ(error.from_rest, 9.5);
  EXPECT_EQ(error.from_accumulation, 9.5 * 0.5);
}

// Depth 2, a differs from A, b is B: everything is a's and accumulation's. a is held transposed.
TEST(GemmError, OneOperandInHighPrecision) {
  const Tensor original_a = Tensor::of<float>({1, 2, 3, 4}, {2, 2});
  const Tensor turned_a = Tensor::of<float>({1, 3, 2.5F, 4}, {2, 2});  // columns are rows
  const Tensor b = Tensor::of<float>({1, 1, 2, -1}, {2, 2});
  // R = [[3, 0], [7, 2]]; a B = [[3.5, -0.5], [7, 2]]
  const Tensor result = Tensor::of<float>({3.5F, -0.5F, 7.0F, 3.0F}, {2, 2});
  const GemmError error =
      gemm_error(plain(turned_a, true), plain(b), plain(original_a), plain(b), result.view());
  EXPECT_EQ(error.error_squares, 0.25 + 0.25 + 1.0);
  EXPECT_EQ(error.reference_squares, 9.0 + 49 + 4);
  EXPECT_EQ(error.from_a, 0.5);
  EXPECT_EQ(error.from_b, 0.0);
  EXPECT_EQ(error.from_rest, 0.0);
  EXPECT_EQ(error.from_accumulation, 1.0);
}

TEST(GemmError, ReferenceIsNotRoundedToFp32) {
  // 2^12 + 1 squared needs 25 bits; fp32 has 24.
  const Tensor x = Tensor::of<float>({4097.0F}, {1, 1});
  const Tensor result = Tensor::of<float>({16785408.0F}, {1, 1});  // 4097^2 = 16785409
  const GemmError error = gemm_error(plain(x), plain(x), plain(x), plain(x), result.view());
  EXPECT_EQ(error.error_squares, 1.0);
  EXPECT_EQ(error.from_accumulation, 1.0);
}

TEST(GemmError, ElementsThatAreNotFiniteAreCountedApart) {
  const Tensor a = Tensor::of<float>({1, test::kNaN, 1, test::kInf}, {4, 1});
  const Tensor b = Tensor::of<float>({2}, {1, 1});
  const Tensor result = Tensor::of<float>({3, test::kNaN, test::kInf, 1}, {4, 1});
  const GemmError error = gemm_error(plain(a), plain(b), plain(a), plain(b), result.view());
  EXPECT_EQ(error.numel, 4U);
  EXPECT_EQ(error.nonfinite, 3U);
  EXPECT_EQ(error.error_squares, 1.0);
}

TEST(GemmError, EmptyResult) {
  const Tensor a(DType::kF32, {0, 3});
  const Tensor b(DType::kF32, {2, 3});
  const Tensor result(DType::kF32, {0, 2});
  EXPECT_EQ(gemm_error(plain(a), plain(b), plain(a), plain(b), result.view()).numel, 0U);
}

TEST(GemmError, RefusesAnOriginalOfAnotherShape) {
  const Tensor a(DType::kF32, {2, 3});
  const Tensor b(DType::kF32, {2, 3});
  const Tensor other(DType::kF32, {1, 3});
  const Tensor result(DType::kF32, {2, 2});
  EXPECT_THROW(static_cast<void>(gemm_error(plain(a), plain(b), plain(other), plain(b), result.view())),
               Error);
}

}  // namespace
}  // namespace amaxscope
