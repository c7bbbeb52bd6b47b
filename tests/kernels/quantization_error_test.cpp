#include "kernels/quantization_error.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "core/error.hpp"
#include "kernels/codec/scale.hpp"
#include "kernels/dequantize.hpp"
#include "tests/kernels/values.hpp"

namespace amaxscope::test {
namespace {

Tensor row(const std::vector<float>& values) {
  return Tensor::of<float>(std::span<const float>(values), {static_cast<std::int64_t>(values.size())});
}

Tensor codes_of(const TensorView& x, float scale, DType format) {
  Tensor out(format, x.shape());
  cast_to_fp8(x, scalar(scale), out);
  return out;
}

void expect_same_bits(const QuantizationError& a, const QuantizationError& b) {
  EXPECT_EQ(a.numel, b.numel);
  EXPECT_EQ(a.nan, b.nan);
  EXPECT_EQ(a.underflows, b.underflows);
  EXPECT_EQ(a.overflows, b.overflows);
  EXPECT_EQ(a.saturated, b.saturated);
  EXPECT_EQ(a.compared, b.compared);
  EXPECT_EQ(bits_of(a.saturated_squares), bits_of(b.saturated_squares));
  EXPECT_EQ(bits_of(a.flushed_squares), bits_of(b.flushed_squares));
  EXPECT_EQ(bits_of(a.error_squares), bits_of(b.error_squares));
  EXPECT_EQ(bits_of(a.signal_squares), bits_of(b.signal_squares));
  EXPECT_EQ(bits_of(a.quantized_squares), bits_of(b.quantized_squares));
  EXPECT_EQ(bits_of(a.product), bits_of(b.product));
  EXPECT_EQ(bits_of(a.max_error), bits_of(b.max_error));
}

TEST(QuantizationError, WorkedSums) {
  // 1.0625 is a tie between 1 and 1.125 and goes to 1; 3 and -16 are exact.
  const QuantizationError error = quantization_error_of_cast(row({1.0625F, 3, -16, 0}), DType::kE4M3, 1.0F);
  EXPECT_EQ(error.numel, 4U);
  EXPECT_EQ(error.error_squares, 0.00390625);
  EXPECT_EQ(error.signal_squares, 1.12890625 + 9 + 256);
  EXPECT_EQ(error.quantized_squares, 1.0 + 9 + 256);
  EXPECT_EQ(error.product, 1.0625 + 9 + 256);
  EXPECT_EQ(error.max_error, 0.0625F);
  EXPECT_EQ(error.underflows, 0U);
}

/// Overflow is beyond max * scale_inv as in the reference; saturated begins at the tie of 464, which still
/// rounds to the maximum.
TEST(QuantizationError, StaleScaleOverflows) {
  const Tensor x = row({1000, 448, 464, 465, -1000, kNaN, kInf});
  const QuantizationError error = quantization_error(x, codes_of(x, 1.0F, DType::kE4M3), 1.0F, 1.0F);
  EXPECT_EQ(error.numel, 7U);
  EXPECT_EQ(error.nan, 1U);
  EXPECT_EQ(error.overflows, 5U);
  EXPECT_EQ(error.saturated, 5U);
  EXPECT_EQ(error.compared, 5U);
  EXPECT_EQ(error.saturated_squares, 1000.0 * 1000 + 464.0 * 464 + 465.0 * 465 + 1000.0 * 1000);
  EXPECT_EQ(error.flushed_squares, 0.0);
  EXPECT_EQ(error.max_error, 552.0F);
  EXPECT_EQ(error.error_squares, 552.0 * 552 + 16.0 * 16 + 17.0 * 17 + 552.0 * 552);
}

TEST(QuantizationError, SaturationOfE5M2BeginsAtTheTie) {
  const Tensor x = row({57344, 61439, 61440, -61440, 1e9F});
  const QuantizationError error = quantization_error_of_cast(x, DType::kE5M2, 1.0F);
  EXPECT_EQ(error.overflows, 4U);
  EXPECT_EQ(error.saturated, 3U);
}

TEST(QuantizationError, OverflowIsCountedOnTheOriginalSaturationOnTheProduct) {
  // scale 2: the limit is 224, the product of 232 is the tie 464.
  const QuantizationError error = quantization_error_of_cast(row({224, 225, 232, 233}), DType::kE4M3, 2.0F);
  EXPECT_EQ(error.overflows, 3U);
  EXPECT_EQ(error.saturated, 2U);
}

TEST(QuantizationError, UnderflowIsANonZeroThatBecomesZero) {
  const Tensor x = row({0x1p-10F, -0x1p-11F, 0, -0.0F, kDenormal, 0x1p-9F, kNaN, 1});
  EXPECT_EQ(quantization_error_of_cast(x, DType::kE4M3, 1.0F).underflows, 3U);
  EXPECT_EQ(quantization_error_of_cast(x, DType::kE4M3, 1.0F).flushed_squares, 0x1p-20 + 0x1p-22 + 0x1p-298);
  EXPECT_EQ(quantization_error_of_cast(x, DType::kE4M3, 4.0F).underflows, 1U);
  EXPECT_EQ(quantization_error_of_cast(x, DType::kE5M2, 1.0F).underflows, 1U);
}

TEST(QuantizationError, NonFiniteDifferencesAreLeftOutOfTheSums) {
  const QuantizationError error = quantization_error_of_cast(row({kInf, 2, kNaN, -kInf}), DType::kE4M3, 1.0F);
  EXPECT_EQ(error.signal_squares, 4.0);
  EXPECT_EQ(error.quantized_squares, 4.0);
  EXPECT_EQ(error.error_squares, 0.0);
  EXPECT_EQ(error.max_error, 0.0F);
  EXPECT_EQ(error.overflows, 2U);
  EXPECT_EQ(error.saturated, 2U);
  EXPECT_EQ(error.nan, 1U);

  Tensor codes(DType::kE5M2, {3});
  codes.values<std::uint8_t>()[0] = 0x7C;  // Inf
  codes.values<std::uint8_t>()[1] = 0x7E;  // NaN
  codes.values<std::uint8_t>()[2] = 0x3C;  // 1
  const QuantizationError damaged = quantization_error(row({5, 6, 3}), codes, 1.0F, 1.0F);
  EXPECT_EQ(damaged.nan, 0U);
  EXPECT_EQ(damaged.compared, 1U);
  EXPECT_EQ(damaged.error_squares, 4.0);
  EXPECT_EQ(damaged.signal_squares, 9.0);
  EXPECT_EQ(damaged.max_error, 2.0F);
}

TEST(QuantizationError, MeasuresTheCodesItIsGiven) {
  const Tensor x = row({1, -2, 0, 4});
  const QuantizationError error = quantization_error(x, Tensor(DType::kE4M3, {4}), 1.0F, 1.0F);
  EXPECT_EQ(error.underflows, 3U);
  EXPECT_EQ(error.error_squares, 21.0);
  EXPECT_EQ(error.quantized_squares, 0.0);
  EXPECT_EQ(error.max_error, 4.0F);
  // And the scale_inv it is given.
  const QuantizationError doubled = quantization_error(x, codes_of(x, 1.0F, DType::kE4M3), 1.0F, 2.0F);
  EXPECT_EQ(doubled.quantized_squares, 84.0);
  EXPECT_EQ(doubled.error_squares, 21.0);
}

TEST(QuantizationError, OfACastEqualsCastingFirstBitForBit) {
  for (const DType format : {DType::kE4M3, DType::kE5M2}) {
    for (const DType input : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (const std::int64_t length : {0, 1, 15, 16, 17, 2047, 2048, 2049, 9001}) {
        std::vector<float> values = sample(length, 31);
        if (length > 100) values[50] = kNaN, values[99] = kInf;
        const Tensor x = converted(row(values), input);
        for (const float scale : {1.0F, 448.0F / 3.0F, 20'000.0F, 1e-3F, kFloatMax}) {
          expect_same_bits(quantization_error_of_cast(x, format, scale),
                           quantization_error(x, codes_of(x, scale, format), scale, scale_inverse(scale)));
        }
      }
    }
  }
}

TEST(QuantizationError, SumsEqualTheDefinition) {
  const std::vector<float> values = sample(5003, 32);
  const Tensor x = row(values);
  const float scale = 99.5F;
  Tensor decoded(DType::kF32, {5003});
  dequantize_fp8(codes_of(x, scale, DType::kE4M3), scalar(scale_inverse(scale)), decoded);
  long double error_squares = 0, quantized_squares = 0, product = 0;
  double max_error = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const long double original = static_cast<long double>(values[i]);
    const long double q = static_cast<long double>(decoded.values<float>()[i]);
    error_squares += (original - q) * (original - q);
    quantized_squares += q * q;
    product += original * q;
    max_error = std::max(max_error, static_cast<double>(std::abs(original - q)));
  }
  const QuantizationError error = quantization_error_of_cast(x, DType::kE4M3, scale);
  EXPECT_NEAR(error.error_squares, static_cast<double>(error_squares),
              static_cast<double>(error_squares) * 1e-13);
  EXPECT_NEAR(error.quantized_squares, static_cast<double>(quantized_squares),
              static_cast<double>(quantized_squares) * 1e-13);
  EXPECT_NEAR(error.product, static_cast<double>(product), static_cast<double>(product) * 1e-13);
  EXPECT_EQ(error.max_error, static_cast<float>(max_error));
}

TEST(QuantizationError, PartsAddUp) {
  const std::vector<float> values = sample(3000, 33);
  const float scale = 5000.0F;  // saturates some
  const QuantizationError whole = quantization_error_of_cast(row(values), DType::kE4M3, scale);
  QuantizationError sum;
  for (std::size_t first = 0; first < values.size(); first += 1000) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(first);
    sum += quantization_error_of_cast(row({begin, begin + 1000}), DType::kE4M3, scale);
  }
  EXPECT_EQ(sum.numel, whole.numel);
  EXPECT_EQ(sum.underflows, whole.underflows);
  EXPECT_GT(whole.overflows, 0U);
  EXPECT_EQ(sum.overflows, whole.overflows);
  EXPECT_EQ(sum.saturated, whole.saturated);
  EXPECT_EQ(sum.compared, whole.compared);
  EXPECT_EQ(sum.max_error, whole.max_error);
  EXPECT_NEAR(sum.error_squares, whole.error_squares, whole.error_squares * 1e-14);
}

TEST(QuantizationError, EmptyAndPadded) {
  expect_same_bits(quantization_error_of_cast(TensorView(nullptr, DType::kF32, {0, 8}), DType::kE4M3, 1.0F),
                   QuantizationError());
  expect_same_bits(quantization_error(TensorView(nullptr, DType::kF32, {0, 8}),
                                      TensorView(nullptr, DType::kE4M3, {0, 8}), 1.0F, 1.0F),
                   QuantizationError());
  const PaddedMatrix<float> x({1.0625F, 3, -16, 0}, {2, 2}, 5, kNaN);
  const QuantizationError of_cast = quantization_error_of_cast(x.view(), DType::kE4M3, 1.0F);
  EXPECT_EQ(of_cast.numel, 4U);
  EXPECT_EQ(of_cast.nan, 0U);
  EXPECT_EQ(of_cast.error_squares, 0.00390625);
  const Tensor codes = codes_of(Tensor::of<float>({1.0625F, 3, -16, 0}, {2, 2}), 1.0F, DType::kE4M3);
  expect_same_bits(quantization_error(x.view(), codes, 1.0F, 1.0F), of_cast);
}

TEST(QuantizationError, RefusesWhatDoesNotFit) {
  const Tensor x = row({1, 2});
  EXPECT_THROW(quantization_error_of_cast(x, DType::kBF16, 1.0F), Error);
  EXPECT_THROW(quantization_error_of_cast(Tensor(DType::kF64, {2}), DType::kE4M3, 1.0F), Error);
  EXPECT_THROW(quantization_error(x, Tensor(DType::kE4M3, {2, 1}), 1.0F, 1.0F), Error);
  EXPECT_THROW(quantization_error(x, Tensor(DType::kU8, {2}), 1.0F, 1.0F), Error);
}

}  // namespace
}  // namespace amaxscope::test
