#include "kernels/magnitudes.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

#include "core/error.hpp"
#include "tests/kernels/values.hpp"

namespace amaxscope::test {
namespace {

std::uint64_t bin(const ExponentHistogram& counts, int exponent) {
  return counts.bins[static_cast<std::size_t>(exponent - ExponentHistogram::kLowest)];
}

std::uint64_t all_of(const ExponentHistogram& counts) {
  std::uint64_t all = counts.zero + counts.nan + counts.inf;
  for (const std::uint64_t count : counts.bins) all += count;
  return all;
}

TEST(ExponentHistogram, EveryKindOfElementHasItsPlace) {
  ExponentHistogram counts;
  add_exponents(Tensor::of<float>({kNaN, kInf, 0, 1, 1.5F, -2, -0.0F, -kInf, -kNaN}, {9}), counts);
  EXPECT_EQ(counts.nan, 2U);
  EXPECT_EQ(counts.inf, 2U);
  EXPECT_EQ(counts.zero, 2U);
  EXPECT_EQ(bin(counts, 0), 2U);
  EXPECT_EQ(bin(counts, 1), 1U);
  EXPECT_EQ(all_of(counts), 9U);
}

TEST(ExponentHistogram, BordersOfBinsAndOfTheFormat) {
  ExponentHistogram counts;
  const float below_two = std::nextafter(2.0F, 0.0F);
  const float least_normal = 0x1p-126F;
  add_exponents(Tensor::of<float>({below_two, 2, kDenormal, 2 * kDenormal, 3 * kDenormal, least_normal,
                                   std::nextafter(least_normal, 0.0F), std::numeric_limits<float>::max()},
                                  {8}),
                counts);
  EXPECT_EQ(bin(counts, 0), 1U);
  EXPECT_EQ(bin(counts, 1), 1U);
  EXPECT_EQ(bin(counts, -149), 1U);
  EXPECT_EQ(bin(counts, -148), 2U);
  EXPECT_EQ(bin(counts, -126), 1U);
  EXPECT_EQ(bin(counts, -127), 1U);
  EXPECT_EQ(bin(counts, 127), 1U);
  EXPECT_EQ(all_of(counts), 8U);
}

/// Bins by frexp instead of bit patterns, over all input types.
TEST(ExponentHistogram, EqualsTheDefinition) {
  const Tensor x = sample_tensor({41, 77}, 5);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const Tensor typed = converted(x, dtype);
    const Tensor wide = converted(typed, DType::kF32);
    std::map<int, std::uint64_t> expected;
    std::uint64_t zeros = 0;
    for (const float value : wide.values<float>()) {
      int exponent = 0;
      if (std::frexp(value, &exponent) == 0) {
        ++zeros;
      } else {
        ++expected[exponent - 1];
      }
    }
    ExponentHistogram counts;
    add_exponents(typed, counts);
    EXPECT_EQ(counts.zero, zeros);
    for (int exponent = ExponentHistogram::kLowest; exponent <= ExponentHistogram::kHighest; ++exponent) {
      EXPECT_EQ(bin(counts, exponent), expected[exponent]) << exponent;
    }
  }
}

TEST(ExponentHistogram, AddsUpAndDoesNotReadPadding) {
  ExponentHistogram counts;
  const PaddedMatrix<float> x({1, 2, 3, 4}, {2, 2}, 5, kNaN);
  add_exponents(x.view(), counts);
  add_exponents(x.view(), counts);
  add_exponents(TensorView(nullptr, DType::kBF16, {0, 8}), counts);
  EXPECT_EQ(all_of(counts), 8U);
  EXPECT_EQ(bin(counts, 1), 4U);
  EXPECT_EQ(counts.nan, 0U);
}

TEST(Magnitudes, CountAboveIsExactForBf16) {
  std::vector<std::uint64_t> counts(kMagnitudeBuckets);
  // Neighbours in bf16: 1, 1 + 2^-7, 1 + 2^-6.
  const float step = 0x1p-7F;
  add_magnitudes(
      Tensor::of<BF16>({to_bf16(1.0F), to_bf16(-1 - step), to_bf16(1 + 2 * step), to_bf16(0.0F)}, {4}),
      counts);
  EXPECT_EQ(count_above(counts, 0.0), 3U);
  EXPECT_EQ(count_above(counts, 0.999), 3U);
  EXPECT_EQ(count_above(counts, 1.0), 2U) << "above, not at";
  EXPECT_EQ(count_above(counts, 1.0 + 0x1p-40), 2U);
  EXPECT_EQ(count_above(counts, 1.0 + 0x1p-7 - 0x1p-40), 2U) << "cut, not rounded up to the element";
  EXPECT_EQ(count_above(counts, 1.0 + 0x1p-7), 1U);
  EXPECT_EQ(count_above(counts, 2.0), 0U);
  EXPECT_EQ(count_above(counts, 1e300), 0U);
}

TEST(Magnitudes, OthersWithinABucketAboveTheLimitAreLeftOut) {
  std::vector<std::uint64_t> counts(kMagnitudeBuckets);
  add_magnitudes(Tensor::of<float>({1.001F, 1.0077F, 3, kInf, kNaN, std::numeric_limits<float>::max()}, {6}),
                 counts);
  EXPECT_EQ(count_above(counts, 1.0), 2U);
  EXPECT_EQ(count_above(counts, 0.999), 4U);
}

TEST(ColumnEnergies, SumsOfSquaresOfWhatIsFinite) {
  std::vector<double> energies(3, 1.0);
  const PaddedMatrix<float> x({1, -2, kNaN, 3, kInf, 1e30F}, {2, 3}, 5, kNaN);
  add_column_energies(x.view(), energies);
  EXPECT_EQ(energies[0], 11.0);
  EXPECT_EQ(energies[1], 5.0);
  EXPECT_EQ(energies[2], 1.0 + double{1e30F} * double{1e30F});
  add_column_energies(TensorView(nullptr, DType::kF16, {0, 3}), energies);
  EXPECT_EQ(energies[0], 11.0);
  const std::vector<F16> halves = {to_f16(300.0F), to_f16(2.0F), to_f16(0.0F)};
  add_column_energies(Tensor::of<F16>(std::span<const F16>(halves), {1, 3}), energies);
  EXPECT_EQ(energies[0], 11.0 + 90000.0);
}

TEST(RowEnergies, SumsOfSquaresOfWhatIsFinite) {
  std::vector<double> energies(2, 1.0);
  const PaddedMatrix<float> x({1, -2, kNaN, 3, kInf, 2}, {2, 3}, 5, kNaN);
  add_row_energies(x.view(), energies);
  EXPECT_EQ(energies[0], 6.0);
  EXPECT_EQ(energies[1], 14.0);
  std::vector<double> none;
  add_row_energies(TensorView(nullptr, DType::kF16, {0, 3}), none);
  EXPECT_THROW(add_row_energies(x.view(), none), Error);
}

TEST(Magnitudes, RefuseWhatTheyCannotRead) {
  ExponentHistogram counts;
  std::vector<double> energies(1);
  std::vector<std::uint64_t> few(3);
  EXPECT_THROW(add_exponents(Tensor(DType::kE4M3, {2}), counts), Error);
  EXPECT_THROW(add_magnitudes(Tensor::of<float>({1, 2}, {2}), few), Error);
  EXPECT_THROW(add_column_energies(Tensor::of<float>({1, 2}, {2}), energies), Error);
}

}  // namespace
}  // namespace amaxscope::test
