#include "kernels/cast.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/error.hpp"
#include "tests/kernels/minifloat_grid.hpp"
#include "tests/kernels/values.hpp"

namespace amaxscope::test {
namespace {

constexpr std::array<DType, 3> kInputs = {DType::kF32, DType::kF16, DType::kBF16};
constexpr std::array<DType, 2> kFormats = {DType::kE4M3, DType::kE5M2};

Tensor codes_of(const TensorView& x, float scale, DType format) {
  Tensor out(format, x.shape());
  cast_to_fp8(x, scalar(scale), out);
  return out;
}

std::vector<std::uint8_t> bytes_of(const Tensor& codes) {
  const auto values = codes.values<std::uint8_t>();
  return {values.begin(), values.end()};
}

float element(const Tensor& x, std::size_t i) {
  switch (x.dtype()) {
    case DType::kF16:
      return to_float(x.values<F16>()[i]);
    case DType::kBF16:
      return to_float(x.values<BF16>()[i]);
    default:
      return x.values<float>()[i];
  }
}

TEST(CastToFp8, SaturatesAndMarksNaN) {
  const Tensor x = Tensor::of<float>({1000, 448, 464, 465, -1000, kNaN, kInf}, {7});
  EXPECT_EQ(bytes_of(codes_of(x, 1.0F, DType::kE4M3)),
            (std::vector<std::uint8_t>{0x7E, 0x7E, 0x7E, 0x7E, 0xFE, 0x7F, 0x7E}));
}

TEST(CastToFp8, IsTheNearestCodeOfTheProductRoundedToFp32) {
  for (const DType format : kFormats) {
    const MinifloatGrid grid = format == DType::kE4M3 ? MinifloatGrid::e4m3() : MinifloatGrid::e5m2();
    for (const DType input : kInputs) {
      const Tensor x = converted(sample_tensor({37, 61}, 1), input);
      for (const float scale : {1.0F, 37.123F, 448.0F / 3.0F, 1e-4F, 0x1p-100F, 3e38F}) {
        const Tensor codes = codes_of(x, scale, format);
        for (std::size_t i = 0; i < 37 * 61; ++i) {
          ASSERT_EQ(codes.values<std::uint8_t>()[i], grid.encode(element(x, i) * scale))
              << to_string(input) << " " << element(x, i) << " * " << scale;
        }
      }
    }
  }
}

/// The loop is compiled into vector code of its own, with a scalar rest: all patterns, at every offset of a
/// vector.
TEST(CastToFp8, EveryBf16AtEveryPosition) {
  for (const DType format : kFormats) {
    const MinifloatGrid grid = format == DType::kE4M3 ? MinifloatGrid::e4m3() : MinifloatGrid::e5m2();
    for (std::int64_t skip = 0; skip < 16; skip += 5) {
      const std::int64_t count = 0x10000 - skip;
      Tensor bf16(DType::kBF16, {count});
      for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
        bf16.values<BF16>()[i].bits = static_cast<std::uint16_t>(i + static_cast<std::size_t>(skip));
      }
      const Tensor f32 = converted(bf16, DType::kF32);
      const Tensor of_bf16 = codes_of(bf16, 1.0F, format);
      const Tensor of_f32 = codes_of(f32, 1.0F, format);
      for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
        ASSERT_EQ(of_bf16.values<std::uint8_t>()[i], grid.encode(element(bf16, i))) << element(bf16, i);
        ASSERT_EQ(of_f32.values<std::uint8_t>()[i], grid.encode(element(bf16, i))) << element(bf16, i);
      }
    }
  }
}

TEST(CastToFp8, RoundsTheProductBeforeTheCode) {
  // 1.9 * 10 = 18.99999976 exactly, 19 in fp32: a tie that goes to the even 20 (0x5A), where a fused or wider
  // product would give 18 (0x59).
  ASSERT_LT(static_cast<double>(1.9F) * 10.0, 19.0);
  ASSERT_EQ(1.9F * 10.0F, 19.0F);
  EXPECT_EQ(bytes_of(codes_of(scalar(1.9F), 10.0F, DType::kE4M3)), std::vector<std::uint8_t>{0x5A});
}

TEST(CastToFp8, EmptyTensorsMayHaveNoData) {
  Tensor out(DType::kE4M3, {0, 8});
  cast_to_fp8(TensorView(nullptr, DType::kF32, {0, 8}), scalar(1), out);
  Tensor transposed(DType::kE4M3, {8, 0});
  cast_transpose_to_fp8(TensorView(nullptr, DType::kBF16, {0, 8}), scalar(1), out, transposed);
}

TEST(CastToFp8, RefusesWhatDoesNotFit) {
  const Tensor x(DType::kF32, {2, 3});
  Tensor codes(DType::kE4M3, {2, 3});
  Tensor flat(DType::kE4M3, {6});
  Tensor bytes(DType::kU8, {2, 3});
  EXPECT_THROW(cast_to_fp8(x, scalar(1), flat), Error);
  EXPECT_THROW(cast_to_fp8(x, scalar(1), bytes), Error);
  EXPECT_THROW(cast_to_fp8(Tensor(DType::kI32, {2, 3}), scalar(1), codes), Error);
  EXPECT_THROW(cast_to_fp8(x, Tensor(DType::kF32, {2}), codes), Error);
  EXPECT_THROW(cast_to_fp8(x, Tensor(DType::kF64, {1}), codes), Error);
  const PaddedMatrix<float> padded(std::vector<float>(6), {2, 3}, 4, 0.0F);
  EXPECT_THROW(cast_to_fp8(padded.view(), scalar(1), codes), Error);
  EXPECT_THROW(cast_transpose_to_fp8(x, scalar(1), codes, codes), Error);
  Tensor other(DType::kE5M2, {3, 2});
  EXPECT_THROW(cast_transpose_to_fp8(x, scalar(1), codes, other), Error);
}

TEST(CastTransposeToFp8, EqualsCastThenTransposeForAwkwardSizes) {
  constexpr std::array<std::int64_t, 9> kSizes = {0, 1, 2, 31, 33, 64, 65, 127, 131};
  for (const DType format : kFormats) {
    for (const DType input : kInputs) {
      for (const std::int64_t rows : kSizes) {
        for (const std::int64_t cols : kSizes) {
          const Tensor x = converted(sample_tensor({rows, cols}, 3), input);
          const Tensor expected = codes_of(x, 100.5F, format);
          Tensor expected_transposed(format, {cols, rows});
          transpose(expected, expected_transposed);
          Tensor codes(format, {rows, cols});
          Tensor transposed(format, {cols, rows});
          cast_transpose_to_fp8(x, scalar(100.5F), codes, transposed);
          ASSERT_EQ(bytes_of(codes), bytes_of(expected)) << rows << " x " << cols;
          ASSERT_EQ(bytes_of(transposed), bytes_of(expected_transposed)) << rows << " x " << cols;
        }
      }
    }
  }
}

TEST(CastTransposeToFp8, LeadingDimensionsAreRows) {
  const Tensor x = sample_tensor({2, 3, 5}, 4);
  Tensor codes(DType::kE4M3, {2, 3, 5});
  Tensor transposed(DType::kE4M3, {5, 6});
  cast_transpose_to_fp8(x, scalar(1), codes, transposed);
  for (std::size_t row = 0; row < 6; ++row) {
    for (std::size_t col = 0; col < 5; ++col) {
      EXPECT_EQ(transposed.values<std::uint8_t>()[col * 6 + row],
                codes.values<std::uint8_t>()[row * 5 + col]);
    }
  }
}

template <class T>
void check_transpose(T (*make)(std::size_t)) {
  constexpr std::size_t kRows = 67;
  constexpr std::size_t kCols = 130;
  std::vector<T> values;
  for (std::size_t i = 0; i < kRows * kCols; ++i) values.push_back(make(i));
  const Tensor x = Tensor::of<T>(std::span<const T>(values), {kRows, kCols});
  Tensor out(DTypeOf<T>::value, {kCols, kRows});
  transpose(x, out);
  for (std::size_t row = 0; row < kRows; ++row) {
    for (std::size_t col = 0; col < kCols; ++col) {
      ASSERT_EQ(
          std::memcmp(&out.template values<T>()[col * kRows + row], &values[row * kCols + col], sizeof(T)),
          0);
    }
  }
}

TEST(Transpose, EveryElementSize) {
  check_transpose<float>([](std::size_t i) { return static_cast<float>(i); });
  check_transpose<double>([](std::size_t i) { return static_cast<double>(i); });
  check_transpose<BF16>([](std::size_t i) { return BF16{static_cast<std::uint16_t>(i)}; });
  check_transpose<std::int64_t>([](std::size_t i) { return static_cast<std::int64_t>(i) << 32; });
}

TEST(Transpose, RefusesHalfBytesAndOtherShapes) {
  Tensor packed(DType::kE2M1, {4, 2});
  EXPECT_THROW(transpose(Tensor(DType::kE2M1, {2, 4}), packed), Error);
  Tensor same_shape(DType::kF32, {2, 4});
  EXPECT_THROW(transpose(Tensor(DType::kF32, {2, 4}), same_shape), Error);
  Tensor other_type(DType::kU32, {4, 2});
  EXPECT_THROW(transpose(Tensor(DType::kF32, {2, 4}), other_type), Error);
}

TEST(Convert, RoundsOnceAndWidensExactly) {
  const double tie_and_a_bit = 1.0 + 0x1p-8 + 0x1p-40;
  const Tensor x = Tensor::of<double>({tie_and_a_bit, -0.0, 1e300, kNaN}, {4});
  const Tensor bf16 = converted(x, DType::kBF16);
  EXPECT_EQ(bf16.values<BF16>()[0].bits, 0x3F81);
  EXPECT_EQ(bf16.values<BF16>()[1].bits, 0x8000);
  EXPECT_EQ(bf16.values<BF16>()[2].bits, 0x7F80);
  EXPECT_EQ(bf16.values<BF16>()[3].bits, 0x7FFF);
  const Tensor back = converted(bf16, DType::kF64);
  EXPECT_EQ(back.values<double>()[0], 1.0 + 0x1p-7);
  EXPECT_TRUE(std::isnan(back.values<double>()[3]));
}

TEST(Convert, EveryPairOfTypesKeepsWhatBothCanHold) {
  constexpr std::array<DType, 4> kTypes = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16};
  const Tensor exact = Tensor::of<float>({0.0F, -1.5F, 96.0F, kInf, -kInf, 0x1p-14F}, {2, 3});
  for (const DType from : kTypes) {
    for (const DType to : kTypes) {
      const Tensor result = converted(converted(converted(exact, from), to), DType::kF32);
      for (std::size_t i = 0; i < 6; ++i) {
        EXPECT_EQ(bits_of(result.values<float>()[i]), bits_of(exact.values<float>()[i]))
            << to_string(from) << " to " << to_string(to);
      }
    }
  }
}

TEST(Convert, RefusesCodesAndOtherShapes) {
  Tensor out(DType::kF32, {3});
  EXPECT_THROW(convert(Tensor(DType::kE4M3, {3}), out), Error);
  EXPECT_THROW(convert(Tensor(DType::kF32, {1, 3}), out), Error);
  Tensor empty(DType::kBF16, {0, 4});
  convert(TensorView(nullptr, DType::kF32, {0, 4}), empty);
}

}  // namespace
}  // namespace amaxscope::test
