// Block-scaled codes against their original, by hand-made blocks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "core/error.hpp"
#include "kernels/quantization_error.hpp"
#include "kernels/rounding_error.hpp"
#include "tests/kernels/values.hpp"

namespace amaxscope {
namespace {

using test::kInf;
using test::kNaN;

/// Blocks of `rows` x `cols` with E8M0 scales, codes as given, four elements a block to keep numbers small.
struct Blocks {
  Tensor codes;
  Tensor scales;
  BlockLayout layout;

  Blocks(DType format, DType scale_format, Shape matrix, std::int64_t rows, std::int64_t cols) {
    layout.format = format;
    layout.scale_format = scale_format;
    layout.block_rows = layout.scale_rows = rows;
    layout.block_cols = layout.scale_cols = cols;
    layout.pad_rows = 4;
    layout.pad_cols = 4;
    codes = Tensor(format, layout.codes_shape(matrix.rows(), matrix.cols()));
    scales = Tensor(scale_format, layout.scales_shape(matrix.rows(), matrix.cols()));
  }
  void set_codes(std::initializer_list<std::uint8_t> bytes) {
    std::copy(bytes.begin(), bytes.end(), static_cast<std::uint8_t*>(codes.mutable_view().data()));
  }
  /// Padding keeps 0xFE, which stands for 2^127: whoever reads it is found out.
  void set_scale(std::int64_t i, std::int64_t j, std::uint8_t byte) {
    static_cast<std::uint8_t*>(scales.mutable_view().data())[i * scales.cols() + j] = byte;
  }
  void poison_padding() {
    auto* bytes = static_cast<std::uint8_t*>(scales.mutable_view().data());
    std::fill_n(bytes, scales.numel(), std::uint8_t{0xFE});
  }
  [[nodiscard]] BlockScaledView view() const {
    BlockScaledView result;
    result.codes = codes.view();
    result.scales = scales.view();
    result.layout = layout;
    return result;
  }
};

// E4M3 codes: 0x38 is 1, 0x40 is 2, 0x7E is 448, 0x01 is 2^-9. E8M0 127 is 1, 128 is 2, 125 is 1/4.
TEST(BlockQuantizationError, EveryBlockHasItsScale) {
  Blocks blocks(DType::kE4M3, DType::kE8M0, {2, 8}, 1, 4);
  blocks.poison_padding();
  blocks.set_scale(0, 0, 128);
  blocks.set_scale(0, 1, 0);  // a block of zeros
  blocks.set_scale(1, 0, 125);
  blocks.set_scale(1, 1, 127);
  blocks.set_codes({0x38, 0x40, 0x00, 0x38, 0x00, 0x80, 0x00, 0x00,  //
                    0x7E, 0x38, 0x00, 0x38, 0x00, 0x38, 0x40, 0x38});
  // Block (0,0), scale 2: 2, 4, 0, 2. Block (1,0), scale 1/4: 112, 1/4, 0, 1/4. Block (1,1): 0, 1, 2, 1.
  const Tensor x = Tensor::of<float>({2, 4, 0, 2.5F, 0, -0.0F, 0, 0,  //
                                      120, 0.25F, 0, 0.25F, 0x1p-12F, 1, 2, 1},
                                     {2, 8});
  const BlockQuantizationError error = quantization_error(x, blocks.view());
  EXPECT_EQ(error.elements.numel, 16U);
  EXPECT_EQ(error.elements.compared, 16U);
  EXPECT_EQ(error.elements.underflows, 1U);
  EXPECT_EQ(error.elements.saturated, 1U);  // 120 * 4 = 480 >= 464
  EXPECT_EQ(error.elements.error_squares, 0.25 + 64 + 0x1p-24);
  EXPECT_EQ(error.elements.saturated_squares, 14400.0);
  EXPECT_EQ(error.elements.flushed_squares, 0x1p-24);
  EXPECT_EQ(error.elements.max_error, 8.0F);
  EXPECT_EQ(error.blocks, 4U);
  EXPECT_EQ(error.zero_blocks, 1U);
  EXPECT_EQ(error.saturated_blocks, 1U);
  EXPECT_EQ(error.flushed_blocks, 1U);
  EXPECT_EQ(error.scale_min, 0.25F);  // decoded, without the block of zeros and without padding
  EXPECT_EQ(error.scale_max, 2.0F);
  EXPECT_EQ(error.worst[0].error_squares, 64.0);
  EXPECT_EQ(error.worst[0].row, 1);
  EXPECT_EQ(error.worst[0].col, 0);
  EXPECT_EQ(error.worst[1].error_squares, 0.25);
  EXPECT_EQ(error.worst[1].row, 0);
  EXPECT_EQ(error.worst[2].col, 4);
  EXPECT_EQ(error.worst[3].error_squares, 0.0);
}

TEST(BlockQuantizationError, CutBlocksAndColumns) {
  // 3 x 2 in blocks of 2 x 1: the lower ones are cut.
  Blocks blocks(DType::kE5M2, DType::kE8M0, {3, 2}, 2, 1);
  blocks.poison_padding();
  for (const std::int64_t i : {0, 1}) {
    for (const std::int64_t j : {0, 1}) blocks.set_scale(i, j, static_cast<std::uint8_t>(127 + i + 2 * j));
  }
  blocks.set_codes({0x3C, 0x3C, 0x3C, 0x3C, 0x3C, 0x3C});  // ones
  const Tensor x = Tensor::of<float>({1, 4, 1, 4, 2, 8}, {3, 2});
  const BlockQuantizationError error = quantization_error(x, blocks.view());
  EXPECT_EQ(error.elements.error_squares, 0.0);
  EXPECT_EQ(error.elements.signal_squares, 1.0 + 16 + 1 + 16 + 4 + 64);
  EXPECT_EQ(error.blocks, 4U);
  EXPECT_EQ(error.scale_max, 8.0F);
}

// S-14: under a block scale of zero every code decodes to zero, also the largest.
TEST(BlockQuantizationError, AScaleOfZeroFlushes) {
  Blocks blocks(DType::kE2M1, DType::kE4M3, {1, 4}, 1, 4);
  blocks.set_codes({0x77, 0x07});  // 6 6 6 0
  BlockScaledView view = blocks.view();
  view.tensor_scale = TensorScale{1.0F, 1.0F};
  const Tensor x = Tensor::of<float>({1e-9F, 2e-9F, 3e-9F, 0}, {1, 4});
  const BlockQuantizationError error = quantization_error(x, view);
  EXPECT_EQ(error.elements.underflows, 3U);
  EXPECT_EQ(error.elements.saturated, 0U);
  EXPECT_EQ(error.zero_blocks, 0U);
  EXPECT_EQ(error.scale_max, 0.0F);  // there is no scale to report
}

TEST(BlockQuantizationError, Fp4SaturatesFromSeven) {
  Blocks blocks(DType::kE2M1, DType::kE4M3, {1, 4}, 1, 4);
  blocks.set_codes({0x77, 0x77});
  blocks.set_scale(0, 0, 0x38);
  BlockScaledView view = blocks.view();
  view.tensor_scale = TensorScale{2.0F, 1.0F};  // decoded scale 2
  const Tensor x = Tensor::of<float>({12, 13.9F, 14, 100}, {1, 4});
  EXPECT_EQ(quantization_error(x, view).elements.saturated, 2U);
}

TEST(BlockQuantizationError, WhatIsNotFinite) {
  Blocks blocks(DType::kE4M3, DType::kE8M0, {1, 8}, 1, 4);
  blocks.set_scale(0, 0, 127);
  blocks.set_scale(0, 1, 127);
  blocks.set_codes({0x7F, 0x38, 0x7E, 0x38, 0x7F, 0x00, 0x00, 0x7F});
  const Tensor x = Tensor::of<float>({kNaN, 1, kInf, 1, kNaN, 0, 0, kNaN}, {1, 8});
  const BlockQuantizationError error = quantization_error(x, blocks.view());
  EXPECT_EQ(error.elements.nan, 3U);
  EXPECT_EQ(error.elements.compared, 4U);
  EXPECT_EQ(error.elements.saturated, 1U);
  EXPECT_EQ(error.zero_blocks, 1U);  // NaN says nothing of a block
}

TEST(BlockQuantizationError, Adds) {
  BlockQuantizationError a;
  a.blocks = 2;
  a.scale_min = 1;
  a.scale_max = 4;
  a.worst[0] = {5, 1, 1};
  BlockQuantizationError b;
  b.blocks = 3;
  b.zero_blocks = 1;
  b.scale_min = 0.5F;
  b.scale_max = 2;
  b.worst[0] = {7, 2, 2};
  b.worst[1] = {1, 3, 3};
  a += b;
  EXPECT_EQ(a.blocks, 5U);
  EXPECT_EQ(a.zero_blocks, 1U);
  EXPECT_EQ(a.scale_min, 0.5F);
  EXPECT_EQ(a.scale_max, 4.0F);
  EXPECT_EQ(a.worst[0].row, 2);
  EXPECT_EQ(a.worst[1].row, 1);
  EXPECT_EQ(a.worst[2].row, 3);
}

TEST(BlockQuantizationError, OneScaleIsOneBlock) {
  Tensor codes(DType::kE4M3, {2, 1});  // transposed: the matrix is 1 x 2
  codes.values<std::uint8_t>()[0] = 0x38;
  codes.values<std::uint8_t>()[1] = 0x40;
  const float scale_inv = 0.5F;
  const Tensor x = Tensor::of<float>({0.5F, 1.25F}, {1, 2});
  const BlockQuantizationError error = quantization_error(x, as_one_block(codes, true, scale_inv));
  EXPECT_EQ(error.blocks, 1U);
  EXPECT_EQ(error.elements.error_squares, 0.0625);
  EXPECT_EQ(error.scale_min, 0.5F);
}

TEST(BlockQuantizationError, RefusesAnotherShape) {
  const Blocks blocks(DType::kE4M3, DType::kE8M0, {2, 8}, 1, 4);
  EXPECT_THROW(static_cast<void>(quantization_error(Tensor(DType::kF32, {2, 4}), blocks.view())), Error);
}

// Under scale 2: 4.25 is 2.125, between 2 and 2.25 with steps of 1/4, coded as 2: half a step down.
TEST(RoundingError, IsInStepsOfTheGrid) {
  Tensor codes(DType::kE4M3, {1, 8});
  const std::array<std::uint8_t, 8> bytes = {0x40, 0x40, 0x7E, 0x00, 0x01, 0xC0, 0x7F, 0x00};
  std::ranges::copy(bytes, codes.values<std::uint8_t>().begin());
  const float scale_inv = 2.0F;
  const Tensor x = Tensor::of<float>({4.25F, 4, 2000, 0x1p-12F, 0x1.8p-8F, -4.125F, kNaN, 0}, {1, 8});
  std::array<float, 8> errors{};
  std::array<float, 8> outward{};
  sampled_rounding_errors(x, as_one_block(codes, false, scale_inv), errors, outward);
  EXPECT_EQ(errors[0], -0.5F);
  EXPECT_EQ(errors[1], 0.0F);
  EXPECT_TRUE(std::isnan(errors[2]));  // clipped, not rounded
  EXPECT_EQ(errors[3], -0x1p-4F);      // 2^-13 of a step of 2^-9
  EXPECT_EQ(errors[4], -0.5F);         // 1.5 * 2^-9 coded as 2^-9
  EXPECT_EQ(errors[5], 0.25F);         // -2.0625 coded as -2: up
  EXPECT_EQ(outward[5], -0.25F);       // and towards zero
  EXPECT_EQ(outward[0], -0.5F);
  EXPECT_TRUE(std::isnan(outward[2]));
  EXPECT_TRUE(std::isnan(errors[6]));
  EXPECT_TRUE(std::isnan(errors[7]));  // a zero is not rounded
}

TEST(RoundingError, SamplesAreSpreadEvenly) {
  Tensor codes(DType::kE4M3, {4, 4});
  const float scale_inv = 1.0F;
  Tensor x(DType::kF32, {4, 4});
  for (std::size_t i = 0; i < 16; ++i) x.values<float>()[i] = static_cast<float>(i) * 0x1p-14F;
  std::array<float, 4> errors{};
  std::array<float, 4> outward{};
  sampled_rounding_errors(x, as_one_block(codes, false, scale_inv), errors, outward);
  EXPECT_TRUE(std::isnan(errors[0]));
  for (std::size_t k = 1; k < 4; ++k) EXPECT_EQ(errors[k], -static_cast<float>(4 * k) * 0x1p-5F);
  std::array<float, 17> too_many{};
  std::array<float, 17> too_many_outward{};
  sampled_rounding_errors(x, as_one_block(codes, false, scale_inv), too_many, too_many_outward);
  EXPECT_THROW(sampled_rounding_errors(x, as_one_block(codes, false, scale_inv), errors, too_many), Error);
  for (const float error : too_many) EXPECT_TRUE(std::isnan(error));
}

}  // namespace
}  // namespace amaxscope
