#include "kernels/gemm.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "core/error.hpp"
#include "kernels/codec/fp8.hpp"
#include "kernels/dequantize.hpp"
#include "tests/kernels/values.hpp"

namespace amaxscope::test {
namespace {

Tensor transposed(const Tensor& x) {
  Tensor result(x.dtype(), {x.cols(), x.rows()});
  transpose(x, result);
  return result;
}

Tensor codes_of(const TensorView& x, float scale, DType format) {
  Tensor out(format, x.shape());
  cast_to_fp8(x, scalar(scale), out);
  return out;
}

std::vector<double> decoded(const Tensor& x) {
  Tensor values(DType::kF32, x.shape());
  if (is_fp8(x.dtype())) {
    dequantize_fp8(x, scalar(1), values);
  } else {
    convert(x, values);
  }
  const auto span = values.values<float>();
  return {span.begin(), span.end()};
}

/// The definition, in double: out[m, n] = sum over k of a[m, k] * b[n, k].
std::vector<double> product_of(const Tensor& a, const Tensor& b) {
  const auto rows = static_cast<std::size_t>(a.rows());
  const auto cols = static_cast<std::size_t>(b.rows());
  const auto depth = static_cast<std::size_t>(a.cols());
  const std::vector<double> left = decoded(a);
  const std::vector<double> right = decoded(b);
  std::vector<double> out(rows * cols);
  for (std::size_t m = 0; m < rows; ++m) {
    for (std::size_t n = 0; n < cols; ++n) {
      for (std::size_t k = 0; k < depth; ++k) out[m * cols + n] += left[m * depth + k] * right[n * depth + k];
    }
  }
  return out;
}

TEST(Gemm, WorkedProductInEveryOrientation) {
  const Tensor a = Tensor::of<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor b = Tensor::of<float>({1, 0, -1, 2, 1, 0}, {2, 3});
  const std::vector<float> expected = {-2, 4, -2, 13};
  const Tensor at = transposed(a);
  const Tensor bt = transposed(b);
  for (const GemmOperand& left : {GemmOperand{a}, GemmOperand{at, true}}) {
    for (const GemmOperand& right : {GemmOperand{b}, GemmOperand{bt, true}}) {
      Tensor out(DType::kF32, {2, 2});
      gemm(left, right, out);
      for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(out.values<float>()[i], expected[i]);
      Tensor exact(DType::kF64, {2, 2});
      gemm_exact(left, right, exact);
      for (std::size_t i = 0; i < 4; ++i)
        EXPECT_EQ(exact.values<double>()[i], static_cast<double>(expected[i]));
    }
  }
}

TEST(Gemm, CodesOfAnyTypeWithTheirScales) {
  const Tensor x = sample_tensor({19, 45}, 1);
  const Tensor w = sample_tensor({23, 45}, 2);
  const float scale_a = 13.0F;
  const float scale_b = 57.0F;
  for (const DType format_a : {DType::kE4M3, DType::kE5M2, DType::kBF16, DType::kF16, DType::kF32}) {
    for (const DType format_b : {DType::kE4M3, DType::kE5M2, DType::kBF16, DType::kF32}) {
      const Tensor a = is_fp8(format_a) ? codes_of(x, scale_a, format_a) : converted(x, format_a);
      const Tensor b = is_fp8(format_b) ? codes_of(w, scale_b, format_b) : converted(w, format_b);
      const float inverse_a = is_fp8(format_a) ? 1 / scale_a : 1;
      const float inverse_b = is_fp8(format_b) ? 1 / scale_b : 1;
      const std::vector<double> expected = product_of(a, b);
      const Tensor bt = transposed(b);
      Tensor out(DType::kF32, {19, 23});
      gemm({a, false, inverse_a}, {bt, true, inverse_b}, out);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        const double value = expected[i] * static_cast<double>(inverse_a) * static_cast<double>(inverse_b);
        ASSERT_NEAR(out.values<float>()[i], value, 1e-4) << to_string(format_a) << " " << to_string(format_b);
      }
    }
  }
}

TEST(Gemm, AddsToTheOutput) {
  const Tensor a = Tensor::of<float>({1, 2}, {1, 2});
  const Tensor b = Tensor::of<float>({3, 4}, {1, 2});
  Tensor out = Tensor::of<float>({100}, {1, 1});
  gemm({a}, {b}, out, 1.0F);
  EXPECT_EQ(out.values<float>()[0], 111.0F);
  gemm({a}, {b}, out, 0.5F);
  EXPECT_EQ(out.values<float>()[0], 66.5F);
}

TEST(Gemm, DoesNotReadTheOutputWithoutBeta) {
  const Tensor a = Tensor::of<float>({2}, {1, 1});
  Tensor out = Tensor::of<float>({kNaN}, {1, 1});
  gemm({a}, {a}, out);
  EXPECT_EQ(out.values<float>()[0], 4.0F);
  Tensor nothing = Tensor::of<float>({kNaN}, {1, 1});
  gemm({TensorView(nullptr, DType::kF32, {1, 0})}, {TensorView(nullptr, DType::kF32, {1, 0})}, nothing);
  EXPECT_EQ(nothing.values<float>()[0], 0.0F);
}

TEST(Gemm, ExtentsOfZero) {
  const TensorView no_depth_a(nullptr, DType::kE4M3, {2, 0});
  const TensorView no_depth_b(nullptr, DType::kBF16, {3, 0});
  Tensor out = Tensor::of<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  gemm({no_depth_a, false, 0.5F}, {no_depth_b}, out, 2.0F);
  EXPECT_EQ(out.values<float>()[5], 12.0F);
  Tensor rounded = Tensor::of<BF16>({{1}, {2}, {3}, {4}, {5}, {6}}, {2, 3});
  gemm({no_depth_a}, {no_depth_b}, rounded);
  EXPECT_EQ(rounded.values<BF16>()[5].bits, 0);
  Tensor doubles = Tensor::of<double>({3}, {1, 1});
  const TensorView no_depth_f64(nullptr, DType::kF64, {1, 0});
  gemm({no_depth_f64}, {no_depth_f64}, doubles, 2.0F);
  EXPECT_EQ(doubles.values<double>()[0], 6.0);

  const Tensor weight(DType::kF32, {3, 4});
  Tensor no_rows(DType::kF32, {0, 3});
  gemm({TensorView(nullptr, DType::kF32, {0, 4})}, {weight}, no_rows);
  Tensor no_cols(DType::kF32, {3, 0});
  gemm({weight}, {TensorView(nullptr, DType::kF32, {4, 0}), true}, no_cols);
  Tensor exact = Tensor::of<double>({7}, {1, 1});
  gemm_exact({TensorView(nullptr, DType::kE4M3, {1, 0})}, {TensorView(nullptr, DType::kE4M3, {0, 1}), true},
             exact);
  EXPECT_EQ(exact.values<double>()[0], 0.0);
}

TEST(Gemm, ProductsOfScalesOutsideFp32) {
  const auto product = [](std::uint8_t code_a, float inverse_a, std::uint8_t code_b, float inverse_b,
                          float start, float beta) {
    const TensorView a(&code_a, DType::kE4M3, {1, 1});
    const TensorView b(&code_b, DType::kE4M3, {1, 1});
    Tensor out = Tensor::of<float>({start}, {1, 1});
    gemm({a, false, inverse_a}, {b, false, inverse_b}, out, beta);
    return out.values<float>()[0];
  };
  // 448 * 448 = 49 * 2^12. alpha = 1.5 * 2^-146 would be 12 steps of the subnormals, 2^-160 none at all.
  EXPECT_EQ(product(0x7E, 0x1.8p-100F, 0x7E, 0x1p-46F, 0, 0), 73.5F * 0x1p-134F);
  EXPECT_EQ(product(0x7E, 0x1.Cp-100F, 0x7E, 0x1.4p-49F, 0, 0), static_cast<float>(49 * 2.1875 * 0x1p-137));
  EXPECT_EQ(product(0x7E, 0x1p-100F, 0x7E, 0x1p-60F, 0, 0), 49 * 0x1p-148F);
  // alpha = 2^140 is beyond fp32; 2^-9 * 2^-9 * 2^140 = 2^122 is not.
  EXPECT_EQ(product(0x01, 0x1p70F, 0x01, 0x1p70F, 0, 0), 0x1p122F);
  EXPECT_EQ(product(0x01, 0x1p70F, 0x01, 0x1p70F, 0x1p122F, 1), 0x1p123F);
  EXPECT_EQ(product(0x01, 0x1p70F, 0x01, 0x1p70F, kNaN, 0), 0x1p122F);
}

TEST(Gemm, NaNAndInfinityReachTheOutput) {
  const Tensor ones = Tensor::of<float>({1, 1}, {1, 2});
  Tensor codes(DType::kE4M3, {2, 2});
  codes.values<std::uint8_t>()[1] = 0x7F;
  Tensor out(DType::kF32, {1, 2});
  gemm({ones}, {codes}, out);
  EXPECT_TRUE(std::isnan(out.values<float>()[0]));
  EXPECT_EQ(out.values<float>()[1], 0.0F);
  const Tensor infinite = Tensor::of<float>({kInf, 1}, {1, 2});
  Tensor single(DType::kF32, {1, 1});
  gemm({ones}, {infinite}, single);
  EXPECT_EQ(single.values<float>()[0], kInf);
}

TEST(Gemm, RoundsToHalfTypesOnce) {
  const Tensor a = Tensor::of<float>({1, 0x1p-8F, 0x1p-20F}, {1, 3});
  const Tensor b = Tensor::of<float>({1, 1, 1}, {1, 3});
  Tensor bf16(DType::kBF16, {1, 1});
  gemm({a}, {b}, bf16);
  EXPECT_EQ(bf16.values<BF16>()[0].bits, 0x3F81);  // just above the tie of 1 and 1 + 2^-7
  Tensor f16(DType::kF16, {1, 1});
  gemm({a}, {b}, f16);
  EXPECT_EQ(f16.values<F16>()[0].bits, 0x3C04);  // 1 + 2^-8
  EXPECT_THROW(gemm({a}, {b}, bf16, 1.0F), Error);
}

TEST(Gemm, DoublesStayDoubles) {
  const Tensor a = Tensor::of<double>({1, 0x1p-40}, {1, 2});
  const Tensor b = Tensor::of<double>({1, 1}, {2, 1});
  Tensor out = Tensor::of<double>({1}, {1, 1});
  gemm({a}, {b, true}, out, 1.0F);
  EXPECT_EQ(out.values<double>()[0], 2 + 0x1p-40);
}

TEST(Gemm, RefusesWhatDoesNotFit) {
  const Tensor a(DType::kF32, {2, 3});
  const Tensor b(DType::kF32, {4, 3});
  Tensor out(DType::kF32, {2, 4});
  Tensor wrong_shape(DType::kF32, {4, 2});
  Tensor doubles(DType::kF64, {2, 4});
  Tensor codes(DType::kE4M3, {2, 4});
  EXPECT_THROW(gemm({a}, {b, true}, out), Error);
  EXPECT_THROW(gemm({a}, {b}, wrong_shape), Error);
  EXPECT_THROW(gemm({a}, {b}, doubles), Error);
  EXPECT_THROW(gemm({a}, {b}, codes), Error);
  EXPECT_THROW(gemm({Tensor(DType::kF64, {2, 3})}, {b}, out), Error);
  EXPECT_THROW(gemm({Tensor(DType::kU8, {2, 3})}, {b}, out), Error);
  EXPECT_THROW(gemm_exact({a}, {b}, out), Error);
  try {
    gemm({a}, {b, true}, out);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTensor);
    EXPECT_STREQ(error.what(), "gemm: a is 2 x 3 and b 3 x 4; the depths differ");
  }
}

TEST(Gemm, ThreadsDoNotChangeWhatIsComputed) {
  EXPECT_THROW(set_gemm_threads(0), Error);
  const Tensor a = sample_tensor({65, 200}, 5);
  const Tensor b = sample_tensor({70, 200}, 6);
  const std::vector<double> expected = product_of(a, b);
  for (const int threads : {2, 1}) {
    set_gemm_threads(threads);
    Tensor out(DType::kF32, {65, 70});
    gemm({a}, {b}, out);
    for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(out.values<float>()[i], expected[i], 1e-3);
  }
}

/// In units of 2^-18, the product of the two smallest E4M3 values, every sum is an integer.
TEST(GemmExact, SumsOfCodesAreExactAndAddOverSplitsOfTheDepth) {
  constexpr std::array<std::array<std::int64_t, 3>, 5> kShapes = {
      {{1, 1, 1}, {5, 129, 3}, {4, 128, 64}, {7, 131, 257}, {9, 2, 1000}}};
  for (const auto& [rows, cols, depth] : kShapes) {
    const Tensor a = codes_of(sample_tensor({rows, depth}, 7), 300, DType::kE4M3);
    const Tensor b = codes_of(sample_tensor({cols, depth}, 8), 300, DType::kE4M3);
    Tensor out(DType::kF64, {rows, cols});
    gemm_exact({a, false, 123.0F}, {b, false, 7.0F}, out);  // the scales are the caller's
    const std::vector<double> left = decoded(a);
    const std::vector<double> right = decoded(b);
    for (std::int64_t m = 0; m < rows; ++m) {
      for (std::int64_t n = 0; n < cols; ++n) {
        std::int64_t sum = 0;
        for (std::int64_t k = 0; k < depth; ++k) {
          sum += static_cast<std::int64_t>(left[static_cast<std::size_t>(m * depth + k)] * 0x1p9) *
                 static_cast<std::int64_t>(right[static_cast<std::size_t>(n * depth + k)] * 0x1p9);
        }
        ASSERT_EQ(out.values<double>()[static_cast<std::size_t>(m * cols + n)],
                  static_cast<double>(sum) * 0x1p-18);
      }
    }
  }
}

TEST(GemmExact, AddsInTheOrderOfTheDepth) {
  const Tensor ones = Tensor::of<double>({1, 1, 1}, {1, 3});
  Tensor out(DType::kF64, {1, 1});
  const Tensor lost = Tensor::of<double>({1e16, 1, -1e16}, {1, 3});
  gemm_exact({lost}, {ones}, out);
  EXPECT_EQ(out.values<double>()[0], 0.0);  // 1e16 + 1 rounds to 1e16
  const Tensor kept = Tensor::of<double>({1e16, -1e16, 1}, {1, 3});
  gemm_exact({ones}, {kept}, out);
  EXPECT_EQ(out.values<double>()[0], 1.0);
}

TEST(ScaleAndRound, RoundsOnce) {
  const Tensor sums = Tensor::of<double>({2.0 * (1.0 + 0x1p-8 + 0x1p-40), -6, 0, 1e300}, {2, 2});
  Tensor bf16(DType::kBF16, {2, 2});
  scale_and_round(sums, 0.5, bf16);
  EXPECT_EQ(bf16.values<BF16>()[0].bits, 0x3F81);
  EXPECT_EQ(bf16.values<BF16>()[1].bits, 0xC040);
  EXPECT_EQ(bf16.values<BF16>()[3].bits, 0x7F80);
  Tensor f32(DType::kF32, {2, 2});
  scale_and_round(sums, 0.5, f32);
  EXPECT_EQ(f32.values<float>()[0], 1.0F + 0x1p-8F);
  EXPECT_EQ(f32.values<float>()[3], kInf);
  EXPECT_THROW(scale_and_round(f32, 0.5, bf16), Error);
  Tensor other(DType::kF32, {4});
  EXPECT_THROW(scale_and_round(sums, 0.5, other), Error);
}

}  // namespace
}  // namespace amaxscope::test
