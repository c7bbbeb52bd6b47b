// NVFP4 against its definition: every step in double and rounded once to fp32, tables of the test's own.
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "kernels/codec/philox.hpp"
#include "kernels/gemm.hpp"
#include "tests/kernels/block_support.hpp"

namespace amaxscope::test {
namespace {

float rn(double x) { return static_cast<float>(x); }
double d(float x) { return static_cast<double>(x); }
float finite(float x) { return std::min(x, 0x1.FFFFFEp127F); }

/// The signs and the Hadamard matrix written out as a product, in double.
std::vector<double> rotation_of(const std::vector<double>& x) {
  constexpr int kSigns[16] = {1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1};
  std::vector<double> y(16, 0.0);
  for (int j = 0; j < 16; ++j) {
    for (int i = 0; i < 16; ++i) {
      const int sign = __builtin_popcount(static_cast<unsigned>(i & j)) % 2 == 0 ? 1 : -1;
      y[static_cast<std::size_t>(j)] += x[static_cast<std::size_t>(i)] * kSigns[i] * sign / 4.0;
    }
  }
  return y;
}

struct Expected {
  std::uint8_t scale;
  std::vector<std::uint8_t> codes;
};

struct Level {
  float encode;
  float decode;
};
Level level_of(float amax, double scale_max) {
  float encode = amax == 0.0F ? 1.0F : finite(rn(6.0 * scale_max / d(amax)));
  if (encode == 0.0F) encode = 1.0F;
  return {encode, rn(1.0 / d(encode))};
}

Expected under_scale(const std::vector<float>& block, std::uint8_t scale, const Level& level) {
  const float product = rn(value_of_code(DType::kE4M3, scale) * d(level.decode));
  const float e = product == 0.0F ? 0x1.FFFFFEp127F : finite(rn(1.0 / d(product)));
  const MinifloatGrid grid = MinifloatGrid::e2m1();
  Expected result{scale, {}};
  for (const float x : block) result.codes.push_back(grid.encode(x * e));
  return result;
}

Expected expected_of(const std::vector<float>& block, float block_amax, float amax) {
  const Level level = level_of(amax, 448.0);
  const float sixth = from_bits(0x3E2AAAABU);
  const float g = rn(d(level.encode) * d(sixth));
  const float wanted = finite(rn(d(block_amax) * d(g)));
  return under_scale(block, MinifloatGrid::e4m3().encode(wanted), level);
}

Both quantized(const TensorView& x, Nvfp4Cast cast = {}) {
  const auto amaxes = nvfp4_amaxes(x, true, true, cast.rotate_columnwise);
  cast.rowwise_amax = from_bits(amaxes[0]);
  cast.columnwise_amax = from_bits(amaxes[1]);
  Both result{{nvfp4_layout(false, cast.two_dimensional), x}, {nvfp4_layout(true, cast.two_dimensional), x}};
  quantize_nvfp4(x, cast, {.rowwise = result.rowwise.output(), .columnwise = result.columnwise.output()});
  result.rowwise.tensor_scale = nvfp4_tensor_scale(cast.rowwise_amax, cast.scale_max);
  result.columnwise.tensor_scale = nvfp4_tensor_scale(cast.columnwise_amax, cast.scale_max);
  result.columnwise.rotated = cast.rotate_columnwise;
  return result;
}

/// Values of a tensor: normal, blocks of very different size, zeros and NaN, no Inf.
std::vector<float> fp4_values(std::int64_t count, unsigned seed) {
  std::vector<float> values = sample(count, seed);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i / 16 % 7 == 3) values[i] *= 1e-7F;
    if (i / 16 % 11 == 5) values[i] = 0.0F;
    if (i % 301 == 7) values[i] = kNaN;
  }
  return values;
}

void expect_block(const BlockScaledView& view, std::int64_t row, std::int64_t col, bool along_rows,
                  std::uint32_t stored_scale, const Expected& expected) {
  ASSERT_EQ(stored_scale, expected.scale) << row << ' ' << col;
  for (std::int64_t i = 0; i < 16; ++i) {
    ASSERT_EQ(along_rows ? view.code(row, col + i) : view.code(row + i, col),
              expected.codes[static_cast<std::size_t>(i)])
        << row << ' ' << col << ' ' << i;
  }
}

TEST(Nvfp4, OneDimensionalBlocksAreTheDefinition) {
  const std::int64_t rows = 48;
  const std::int64_t cols = 80;
  const Tensor x = matrix_of(fp4_values(rows * cols, 2), rows, cols);
  const float amax = amax_of(x, 0, rows, 0, cols);
  const Both q = quantized(x);
  for (std::int64_t m = 0; m < rows; ++m) {
    for (std::int64_t j = 0; j < cols / 16; ++j) {
      std::vector<float> block;
      for (std::int64_t i = 0; i < 16; ++i) block.push_back(at(x, m, j * 16 + i));
      // Stored [up(48, 128), up(5, 4)].
      expect_block(q.rowwise.view(), m, j * 16, true, q.rowwise.scale_bits(m * 8 + j),
                   expected_of(block, amax_of(x, m, 1, j * 16, 16), amax));
    }
  }
  for (std::int64_t k = 0; k < cols; ++k) {
    for (std::int64_t i = 0; i < rows / 16; ++i) {
      std::vector<float> block;
      for (std::int64_t r = 0; r < 16; ++r) block.push_back(at(x, i * 16 + r, k));
      // Stored [up(80, 128), up(3, 4)], by column of x.
      expect_block(q.columnwise.view(), i * 16, k, false, q.columnwise.scale_bits(k * 4 + i),
                   expected_of(block, amax_of(x, i * 16, 16, k, 1), amax));
    }
  }
}

TEST(Nvfp4, DecodesAsTheReferenceRoundsIt) {
  const Tensor x = matrix_of(sample(32 * 32, 4), 32, 32);
  const float amax = amax_of(x, 0, 32, 0, 32);
  const Both q = quantized(x);
  Tensor values(DType::kF32, {32, 32});
  dequantize_blocks(q.rowwise.view(), values);
  for (std::int64_t m = 0; m < 32; ++m) {
    for (std::int64_t k = 0; k < 32; ++k) {
      const double sb =
          value_of_code(DType::kE4M3, static_cast<std::uint8_t>(q.rowwise.scale_bits(m * 4 + k / 16)));
      const float factor = rn(d(rn(sb * d(amax))) * d(from_bits(0x39C30C31U)));
      const double code = value_of_code(DType::kE2M1, q.rowwise.view().code(m, k));
      ASSERT_EQ(bits_of(at(values, m, k)), bits_of(rn(d(factor) * code)));
    }
  }
}

TEST(Nvfp4, SquareBlocksShareOneScaleAndTheColumnwiseCodesAreTheTranspose) {
  const std::int64_t rows = 32;
  const std::int64_t cols = 48;
  const Tensor x = matrix_of(fp4_values(rows * cols, 6), rows, cols);
  const Both q = quantized(x, {.two_dimensional = true});
  EXPECT_EQ(q.rowwise.view().block_count(), 6);
  for (std::int64_t m = 0; m < rows; ++m) {
    for (std::int64_t j = 0; j < cols / 16; ++j) {
      std::vector<float> block;
      for (std::int64_t i = 0; i < 16; ++i) block.push_back(at(x, m, j * 16 + i));
      const float block_amax = amax_of(x, m / 16 * 16, 16, j * 16, 16);
      expect_block(q.rowwise.view(), m, j * 16, true, q.rowwise.scale_bits(m * 4 + j),
                   expected_of(block, block_amax, amax_of(x, 0, rows, 0, cols)));
    }
    for (std::int64_t k = 0; k < cols; ++k) {
      ASSERT_EQ(q.rowwise.view().code(m, k), q.columnwise.view().code(m, k));
      ASSERT_EQ(q.columnwise.scale_bits(k * 4 + m / 16), q.rowwise.scale_bits(m * 4 + k / 16));
    }
  }
}

TEST(Nvfp4, PackedWithTheFirstElementInTheLowNibble) {
  std::vector<float> values(16 * 16, 0.0F);
  values[0] = 1.0F;
  values[1] = -6.0F;
  const Both q = quantized(matrix_of(values, 16, 16));
  EXPECT_EQ(static_cast<const std::uint8_t*>(q.rowwise.codes.view().data())[0], 0xF2);
  EXPECT_EQ(q.rowwise.codes.bytes(), 128U);
  EXPECT_EQ(q.rowwise.scale_bits(0), 0x7EU) << "448: the block holds the largest value of the tensor";
}

TEST(Nvfp4, ZeroTensorAndTinyBlocks) {
  const Both zero = quantized(matrix_of(std::vector<float>(256, -0.0F), 16, 16));
  EXPECT_EQ(zero.rowwise.scale_bits(0), 0U);
  EXPECT_EQ(zero.rowwise.view().code(0, 0), 0x8) << "the sign of zero is kept";
  EXPECT_EQ(zero.rowwise.view().scale(0, 0), 0.0F);

  std::vector<float> values(16 * 16, 0.0F);
  values[0] = 1.0F;
  values[16] = 2e-6F;  // 2e-6 * 448 = 8.96e-4 <= 2^-10: the block scale is 0
  values[17] = -1e-6F;
  values[32] = 2.3e-6F;  // 1.03e-3 > 2^-10: the smallest block scale, 2^-9
  const Both q = quantized(matrix_of(values, 16, 16));
  EXPECT_EQ(q.rowwise.scale_bits(4), 0U);
  EXPECT_EQ(q.rowwise.view().code(1, 0), 0x7) << "saturated";
  EXPECT_EQ(q.rowwise.view().code(1, 1), 0xF);
  EXPECT_EQ(q.rowwise.view().code(1, 2), 0x0) << "0 times FLT_MAX";
  EXPECT_EQ(q.rowwise.scale_bits(8), 1U);
  Tensor decoded(DType::kF32, {16, 16});
  dequantize_blocks(q.rowwise.view(), decoded);
  EXPECT_EQ(at(decoded, 1, 0), 0.0F) << "but decoded it is gone";
  EXPECT_EQ(at(decoded, 1, 1), 0.0F);
  EXPECT_NE(at(decoded, 2, 0), 0.0F);
}

TEST(Nvfp4, InfAndNan) {
  std::vector<float> values(16 * 16, 1.0F);
  values[0] = kInf;
  values[16] = kNaN;
  const Both q = quantized(matrix_of(values, 16, 16));
  EXPECT_EQ(q.rowwise.scale_bits(0), 0x7EU);
  EXPECT_EQ(q.rowwise.view().code(0, 0), 0x7);
  EXPECT_EQ(q.rowwise.view().code(1, 0), 0x7) << "NaN has no code and becomes +6";
  EXPECT_TRUE(std::isinf(q.rowwise.view().scale(0, 0))) << "garbage in, garbage out";
}

TEST(Nvfp4, ColumnwiseCodesAreOfTheRotatedColumnsRoundedToBf16) {
  // Multiples of 2^-6 below 2: every sum is exact in fp32, whatever its order.
  std::mt19937 engine(3);
  std::uniform_int_distribution<int> integer(-127, 127);
  const std::int64_t rows = 32;
  const std::int64_t cols = 16;
  std::vector<float> values(static_cast<std::size_t>(rows * cols));
  for (float& value : values) value = static_cast<float>(integer(engine)) / 64.0F;
  const Tensor x = matrix_of(values, rows, cols);
  for (const DType dtype : {DType::kBF16, DType::kF32, DType::kF16}) {
    const Both q = quantized(converted(x, dtype), {.rotate_columnwise = true});
    std::vector<std::vector<float>> blocks;
    float amax = 0;
    for (std::int64_t k = 0; k < cols; ++k) {
      for (std::int64_t i = 0; i < rows / 16; ++i) {
        std::vector<double> column;
        for (std::int64_t r = 0; r < 16; ++r) column.push_back(d(at(x, i * 16 + r, k)));
        std::vector<float> block;
        for (const double y : rotation_of(column)) {
          block.push_back(dtype == DType::kBF16 ? to_float(to_bf16(rn(y))) : rn(y));
          amax = std::max(amax, std::abs(block.back()));
        }
        blocks.push_back(block);
      }
    }
    EXPECT_EQ(q.columnwise.tensor_scale->amax, amax);
    EXPECT_EQ(q.rowwise.tensor_scale->amax, amax_of(x, 0, rows, 0, cols)) << "rows are not rotated";
    for (std::int64_t k = 0; k < cols; ++k) {
      for (std::int64_t i = 0; i < rows / 16; ++i) {
        const auto& block = blocks[static_cast<std::size_t>(k * (rows / 16) + i)];
        float block_amax = 0;
        for (const float y : block) block_amax = std::max(block_amax, std::abs(y));
        expect_block(q.columnwise.view(), i * 16, k, false, q.columnwise.scale_bits(k * 4 + i),
                     expected_of(block, block_amax, amax));
      }
    }
  }
}

TEST(Nvfp4, ARotatedDirectionStandsForTheSameTensorAndCancelsInAProduct) {
  const Tensor x = sample_tensor({32, 32}, 8);
  const Both q = quantized(x, {.rotate_columnwise = true});
  Tensor values(DType::kF32, {32, 32});
  dequantize_blocks(q.columnwise.view(), values);
  double error = 0;
  double signal = 0;
  for (std::size_t i = 0; i < 1024; ++i) {
    const double difference = d(values.values<float>()[i]) - d(x.values<float>()[i]);
    error += difference * difference;
    signal += d(x.values<float>()[i]) * d(x.values<float>()[i]);
  }
  EXPECT_LT(error, 0.03 * signal) << "turned back; as codes of the rotated tensor it would be near 2";

  const GemmOperand rotated{
      .data = q.columnwise.codes, .transposed = false, .scale_inv = 1.0F, .blocks = q.columnwise.view()};
  const GemmOperand turned{.data = values, .transposed = true};
  Tensor both(DType::kF32, {32, 32});
  Tensor one(DType::kF32, {32, 32});
  Tensor none(DType::kF32, {32, 32});
  gemm(rotated, rotated, both);
  gemm(rotated, turned, one);
  gemm(turned, turned, none);
  for (std::size_t i = 0; i < 1024; ++i) {
    EXPECT_NEAR(both.values<float>()[i], none.values<float>()[i], 1e-3F);
    EXPECT_NEAR(one.values<float>()[i], none.values<float>()[i], 1e-3F);
  }
}

/// Of both candidates the one with the smaller error, worked element by element.
Expected four_over_six_of(const std::vector<float>& block, float amax, double scale_max, bool squared) {
  float block_amax = 0;
  for (const float x : block) block_amax = std::max(block_amax, std::abs(x));
  const Level level = level_of(amax, scale_max);
  const float base = rn(d(rn(d(block_amax) / 6.0)) * d(level.encode));
  const MinifloatGrid grid = MinifloatGrid::e4m3();
  const Expected six = under_scale(block, grid.encode(base), level);
  const Expected four = under_scale(block, grid.encode(rn(d(base) * 1.5)), level);
  const auto error = [&](const Expected& e) {
    float sum = 0;
    for (std::size_t i = 0; i < block.size(); ++i) {
      const float product =
          rn(value_of_code(DType::kE2M1, e.codes[i]) * value_of_code(DType::kE4M3, e.scale));
      const float decoded = rn(d(rn(d(product) * d(amax))) / (6.0 * scale_max));
      const float difference = decoded - block[i];
      sum += squared ? difference * difference : std::abs(difference);
    }
    return sum;
  };
  return error(four) < error(six) ? four : six;
}

TEST(Nvfp4, FourOverSixTakesTheScaleWithTheSmallerError) {
  const std::int64_t rows = 32;
  const std::int64_t cols = 64;
  const Tensor x = sample_tensor({rows, cols}, 12);
  const float amax = amax_of(x, 0, rows, 0, cols);
  for (const float scale_max : {448.0F, 256.0F}) {
    for (const FourOverSix mode : {FourOverSix::kSquaredError, FourOverSix::kAbsoluteError}) {
      const Both q = quantized(x, {.four_over_six = mode, .scale_max = scale_max});
      int wider = 0;
      for (std::int64_t m = 0; m < rows; ++m) {
        for (std::int64_t j = 0; j < cols / 16; ++j) {
          std::vector<float> block;
          for (std::int64_t i = 0; i < 16; ++i) block.push_back(at(x, m, j * 16 + i));
          const Expected expected =
              four_over_six_of(block, amax, d(scale_max), mode == FourOverSix::kSquaredError);
          expect_block(q.rowwise.view(), m, j * 16, true, q.rowwise.scale_bits(m * 4 + j), expected);
          const auto six = expected_of(block, amax_of(x, m, 1, j * 16, 16), amax);
          wider += scale_max == 448.0F && expected.scale > six.scale + 1 ? 1 : 0;
        }
      }
      if (scale_max == 448.0F) {
        EXPECT_GT(wider, 10) << "both kinds of blocks are there";
        EXPECT_LT(wider, 118);
      }
    }
  }
}

TEST(Nvfp4, StochasticRoundingDrawsByPositionAsDocumented) {
  const Tensor x = sample_tensor({32, 48}, 21);
  const StochasticRounding random{.key = 0x0123456789ABCDEFU, .call = 0x100000002U};
  const Both q = quantized(x, {.stochastic = random});
  const float amax = amax_of(x, 0, 32, 0, 48);
  const auto check = [&](const BlockScaledView& view, std::int64_t row, std::int64_t col, std::int64_t index,
                         std::uint8_t scale, std::uint32_t columnwise) {
    const auto words =
        philox4x32_10({static_cast<std::uint32_t>(index), 0, 2, 2 + columnwise}, {0x89ABCDEFU, 0x01234567U});
    const Level level = level_of(amax, 448.0);
    const float e = rn(1.0 / d(rn(value_of_code(DType::kE4M3, scale) * d(level.decode))));
    for (std::int64_t i = 0; i < 16; ++i) {
      const std::int64_t m = columnwise != 0 ? row + i : row;
      const std::int64_t k = columnwise != 0 ? col : col + i;
      const double a = std::abs(d(at(x, m, k) * e));
      const auto step = [](double v) { return v >= 4 ? 2.0 : v >= 2 ? 1.0 : 0.5; };
      const double u = ((words[static_cast<std::size_t>(i / 4)] >> (i % 4 * 8)) & 0xFFU) / 256.0;
      const double moved = d(rn(a + u * step(a)));
      const double expected = std::min(std::floor(moved / step(moved)) * step(moved), 6.0);
      ASSERT_EQ(std::abs(value_of_code(DType::kE2M1, view.code(m, k))), expected) << m << ' ' << k;
    }
  };
  for (std::int64_t m = 0; m < 32; ++m) {
    for (std::int64_t j = 0; j < 3; ++j) {
      const auto scale = static_cast<std::uint8_t>(q.rowwise.scale_bits(m * 4 + j));
      if (scale != 0) check(q.rowwise.view(), m, j * 16, m * 3 + j, scale, 0);
    }
  }
  for (std::int64_t k = 0; k < 48; ++k) {
    for (std::int64_t i = 0; i < 2; ++i) {
      const auto scale = static_cast<std::uint8_t>(q.columnwise.scale_bits(k * 4 + i));
      if (scale != 0) check(q.columnwise.view(), i * 16, k, k * 2 + i, scale, 1);
    }
  }
}

TEST(Nvfp4, StochasticRoundingIsUnbiasedAndLeavesTheGridAlone) {
  // One block holds 6, so that e is 1 for A = 2688; the others are between grid points or on them.
  std::vector<float> values(16 * 16, 0.0F);
  const std::vector<float> cases = {0.1F, 0.25F, 0.7F, 1.1F, 1.75F, 2.25F, 2.9F, 3.5F,
                                    4.5F, 5.9F,  0.5F, 1.5F, 3.0F,  4.0F,  -2.6F};
  for (std::size_t i = 0; i < cases.size(); ++i) values[i] = cases[i];
  values[15] = 6.0F;
  const Tensor x = matrix_of(values, 16, 16);
  const int draws = 4000;
  std::vector<double> sums(16);
  std::vector<double> squares(16);
  for (int draw = 0; draw < draws; ++draw) {
    Nvfp4Cast cast{.stochastic = StochasticRounding{.key = 42, .call = static_cast<std::uint64_t>(draw)},
                   .rowwise_amax = 2688.0F,
                   .columnwise_amax = 2688.0F};
    Quantized out(nvfp4_layout(false, false), x);
    quantize_nvfp4(x, cast, {.rowwise = out.output()});
    ASSERT_EQ(out.scale_bits(0), 0x38U) << "1";
    for (std::int64_t i = 0; i < 16; ++i) {
      const double value = value_of_code(DType::kE2M1, out.view().code(0, i));
      sums[static_cast<std::size_t>(i)] += value;
      squares[static_cast<std::size_t>(i)] += value * value;
    }
  }
  for (std::size_t i = 0; i < 16; ++i) {
    const double mean = sums[i] / draws;
    const double deviation = std::sqrt(std::max(0.0, squares[i] / draws - mean * mean) / draws);
    const bool on_grid = i >= 10 && i != 14;  // 0.5, 1.5, 3, 4 and 6
    if (on_grid) {
      EXPECT_EQ(mean, d(values[i]));
      EXPECT_EQ(deviation, 0.0);
    } else {
      // u has eight bits: the chance to go up is the distance in units of step / 256, rounded down.
      const double a = std::abs(d(values[i]));
      const double step = a >= 4 ? 2.0 : a >= 2 ? 1.0 : 0.5;
      const double lower = std::floor(a / step) * step;
      const double expected =
          std::copysign(lower + std::floor((a - lower) / step * 256) / 256 * step, d(values[i]));
      EXPECT_GT(deviation, 0.0) << values[i];
      EXPECT_NEAR(mean, expected, 5 * deviation) << values[i];
      EXPECT_NEAR(expected, d(values[i]), step / 256) << values[i];
    }
  }
}

TEST(Nvfp4, DrawsDifferByDirectionCallAndKey) {
  const Tensor x = sample_tensor({64, 64}, 9);
  const auto codes = [&](std::uint64_t key, std::uint64_t call) {
    return quantized(x, {.stochastic = StochasticRounding{.key = key, .call = call}});
  };
  const auto same = [](const Quantized& a, const Quantized& b) {
    return std::memcmp(a.codes.view().data(), b.codes.view().data(), a.codes.bytes()) == 0;
  };
  const Both first = codes(1, 0);
  EXPECT_TRUE(same(first.rowwise, codes(1, 0).rowwise)) << "a pure function";
  EXPECT_FALSE(same(first.rowwise, codes(1, 1).rowwise));
  EXPECT_FALSE(same(first.rowwise, codes(2, 0).rowwise));
  const Tensor turned = transpose_of(x);
  const Both other = quantized(turned, {.stochastic = StochasticRounding{.key = 1, .call = 0}});
  EXPECT_FALSE(same(first.columnwise, other.rowwise)) << "the same blocks at the same places";
}

TEST(Nvfp4, CombinationsThatDoNotExistAreRefused) {
  const Tensor x(DType::kF32, {16, 16});
  Quantized row(nvfp4_layout(false, false), x);
  const BlockOutputs out{.rowwise = row.output()};
  EXPECT_THROW(quantize_nvfp4(x, {.two_dimensional = true, .rotate_columnwise = true}, out), Error);
  EXPECT_THROW(
      quantize_nvfp4(x, {.rotate_columnwise = true, .four_over_six = FourOverSix::kSquaredError}, out),
      Error);
  EXPECT_THROW(quantize_nvfp4(
                   x, {.stochastic = StochasticRounding{}, .four_over_six = FourOverSix::kSquaredError}, out),
               Error);
  EXPECT_THROW(quantize_nvfp4(x, {.scale_max = 256.0F}, out), Error);
  EXPECT_THROW(quantize_nvfp4(Tensor(DType::kF32, {16, 24}), {}, out), Error);
}

}  // namespace
}  // namespace amaxscope::test
