// Codes and scales by hand: E4M3 0x38 is 1, 0x40 is 2, 0xB8 is -1; E8M0 byte b is 2^(b-127); E2M1 code 2 is
// 1, 7 is 6, 0xA is -1.
#include "runtime/quantizers/block_scaled_tensor.hpp"

#include <gmock/gmock.h>

#include <cmath>

#include "core/error.hpp"
#include "runtime/quantizers/quantizer_factory.hpp"

namespace amaxscope {
namespace {

using testing::Each;
using testing::HasSubstr;

constexpr Direction kRow = Direction::kRowwise;
constexpr Direction kColumn = Direction::kColumnwise;

std::uint8_t* bytes(Tensor& tensor) { return static_cast<std::uint8_t*>(tensor.mutable_view().data()); }

/// 64 x 64 ones whose block in row r and column block j has the scale 2^(r % 3 + j).
BlockScaledCodes rowwise_mxfp8() {
  BlockScaledCodes result;
  result.layout = {
      .block_rows = 1, .block_cols = 32, .scale_rows = 1, .scale_cols = 32, .pad_rows = 128, .pad_cols = 4};
  result.codes = Tensor(DType::kE4M3, {64, 64});
  result.scales = Tensor(DType::kE8M0, {128, 4});
  for (std::int64_t i = 0; i < 64 * 64; ++i) bytes(result.codes)[i] = 0x38;
  for (std::int64_t row = 0; row < 64; ++row) {
    for (std::int64_t block = 0; block < 2; ++block) {
      bytes(result.scales)[row * 4 + block] = static_cast<std::uint8_t>(127 + row % 3 + block);
    }
  }
  return result;
}

/// The columnwise layout, codes of 2 under the scale 2^(i + k % 2) of block row i and column k.
BlockScaledCodes columnwise_mxfp8() {
  BlockScaledCodes result;
  result.layout = {
      .block_rows = 32, .block_cols = 1, .scale_rows = 32, .scale_cols = 1, .pad_rows = 4, .pad_cols = 128};
  result.codes = Tensor(DType::kE4M3, {64, 64});
  result.scales = Tensor(DType::kE8M0, {4, 128});
  for (std::int64_t i = 0; i < 64 * 64; ++i) bytes(result.codes)[i] = 0x40;
  for (std::int64_t block = 0; block < 2; ++block) {
    for (std::int64_t col = 0; col < 64; ++col) {
      bytes(result.scales)[block * 128 + col] = static_cast<std::uint8_t>(127 + block + col % 2);
    }
  }
  return result;
}

TEST(BlockScaledTensor, ScalesOfLogicalBlocksInBothDirections) {
  const BlockScaledTensor tensor({2, 32, 64}, RecipeKind::kMxfp8, rowwise_mxfp8(), columnwise_mxfp8());
  const BlockScaledView row = tensor.blocks(kRow);
  EXPECT_EQ(row.blocks_down(), 64);
  EXPECT_EQ(row.blocks_across(), 2);
  EXPECT_EQ(row.block_count(), 128);
  EXPECT_EQ(row.scale(5, 1), 8.0F);
  const BlockScaledView column = tensor.blocks(kColumn);
  EXPECT_EQ(column.blocks_down(), 2);
  EXPECT_EQ(column.blocks_across(), 64);
  EXPECT_EQ(column.scale(1, 33), 4.0F);
}

TEST(BlockScaledTensor, DequantizesEitherDirectionIntoTheLogicalShape) {
  const BlockScaledTensor tensor({2, 32, 64}, RecipeKind::kMxfp8, rowwise_mxfp8(), columnwise_mxfp8());
  const Tensor row = tensor.dequantize(DType::kF32, kRow);
  const Tensor column = tensor.dequantize(DType::kF64, kColumn);
  EXPECT_EQ(row.shape(), Shape({2, 32, 64}));
  for (std::int64_t m = 0; m < 64; ++m) {
    for (std::int64_t k = 0; k < 64; ++k) {
      const auto at = static_cast<std::size_t>(m * 64 + k);
      ASSERT_EQ(row.values<float>()[at], std::exp2(static_cast<float>(m % 3 + k / 32)));
      ASSERT_EQ(column.values<double>()[at], 2.0 * std::exp2(static_cast<double>(m / 32 + k % 2)));
    }
  }
}

TEST(BlockScaledTensor, OperandsMultiplyAsWhatTheyDequantizeTo) {
  const BlockScaledTensor tensor({64, 64}, RecipeKind::kMxfp8, rowwise_mxfp8(), columnwise_mxfp8());
  for (const Direction direction : {kRow, kColumn}) {
    const Tensor values = tensor.dequantize(DType::kF32, direction);
    const GemmOperand plain{.data = values, .transposed = direction == kColumn};
    Tensor expected(DType::kF32, {64, 64});
    gemm(plain, plain, expected);
    Tensor product(DType::kF32, {64, 64});
    gemm(tensor.operand(direction), tensor.operand(direction), product);
    EXPECT_TRUE(std::ranges::equal(product.values<float>(), expected.values<float>()));
    Tensor exact(DType::kF64, {64, 64});
    gemm_exact(tensor.operand(direction), tensor.operand(direction), exact);
    for (std::size_t i = 0; i < 64 * 64; ++i) {
      ASSERT_EQ(exact.values<double>()[i], static_cast<double>(expected.values<float>()[i]));
    }
  }
}

TEST(BlockScaledTensor, OneDimensionalBlocksCannotBeTurned) {
  BlockScaledTensor tensor({64, 64}, RecipeKind::kMxfp8, rowwise_mxfp8(), columnwise_mxfp8());
  tensor.update_usage({.rowwise = false, .columnwise = true});
  EXPECT_EQ(tensor.usage(), (Usage{false, true}));
  EXPECT_THROW(static_cast<void>(tensor.blocks(kRow)), Error);
  try {
    tensor.update_usage({.rowwise = true, .columnwise = false});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("rowwise"), HasSubstr("mxfp8"), HasSubstr("[64, 64]")));
  }
  EXPECT_EQ(tensor.usage(), (Usage{false, true})) << "nothing changed";
}

/// FP8 blocks of 128 x 128 of a 130 x 4 matrix: two blocks, scales 1 and 0.5, codes that tell where they are.
BlockScaledCodes two_dimensional() {
  BlockScaledCodes result;
  result.layout = {.scale_format = DType::kF32,
                   .block_rows = 128,
                   .block_cols = 128,
                   .scale_rows = 128,
                   .scale_cols = 128,
                   .pad_cols = 4};
  result.codes = Tensor(DType::kE4M3, {130, 4});
  result.scales = Tensor(DType::kF32, {2, 4});
  result.scales.values<float>()[0] = 1.0F;
  result.scales.values<float>()[4] = 0.5F;
  for (std::int64_t i = 0; i < 130 * 4; ++i) bytes(result.codes)[i] = static_cast<std::uint8_t>(i % 100);
  return result;
}

TEST(BlockScaledTensor, TwoDimensionalBlocksCanBeTurnedAndBack) {
  BlockScaledCodes other;
  other.layout = {.scale_format = DType::kF32,
                  .block_rows = 128,
                  .block_cols = 128,
                  .scale_rows = 128,
                  .scale_cols = 128,
                  .codes_transposed = true,
                  .scales_transposed = true,
                  .pad_cols = 4};
  BlockScaledTensor tensor({130, 4}, RecipeKind::kBlock, two_dimensional(), std::move(other));
  const Tensor before = tensor.dequantize(DType::kF32, kRow);
  tensor.update_usage({.rowwise = false, .columnwise = true});
  const BlockScaledView column = tensor.blocks(kColumn);
  EXPECT_EQ(column.codes.shape(), Shape({4, 130}));
  EXPECT_EQ(column.codes.values<std::uint8_t>()[130 + 129], (129 * 4 + 1) % 100);
  EXPECT_THAT(column.scales.values<float>(), testing::ElementsAre(1.0F, 0.5F, 0, 0));
  EXPECT_EQ(column.scale(1, 0), 0.5F);
  tensor.update_usage({.rowwise = true, .columnwise = false});
  const Tensor after = tensor.dequantize(DType::kF32, kRow);
  EXPECT_TRUE(std::ranges::equal(before.values<float>(), after.values<float>()));
}

TEST(BlockScaledTensor, FourBitCodesAndTwoLevelsOfScales) {
  BlockScaledCodes codes;
  codes.layout = {.format = DType::kE2M1,
                  .scale_format = DType::kE4M3,
                  .block_rows = 1,
                  .block_cols = 16,
                  .scale_rows = 1,
                  .scale_cols = 16,
                  .pad_rows = 128,
                  .pad_cols = 4};
  codes.codes = Tensor(DType::kE2M1, {1, 16});
  codes.scales = Tensor(DType::kE4M3, {128, 4});
  codes.tensor_scale = TensorScale{.amax = 2688.0F, .factor = 1.0F / 2688.0F};
  bytes(codes.codes)[0] = 0x72;  // 1 and 6
  bytes(codes.codes)[7] = 0xA0;  // 0 and -1
  bytes(codes.scales)[0] = 0x40;
  const BlockScaledTensor tensor({1, 16}, RecipeKind::kNvfp4, std::move(codes), {});
  EXPECT_EQ(tensor.blocks(kRow).scale(0, 0), 2.0F);
  EXPECT_EQ(tensor.blocks(kRow).code(0, 1), 7);
  EXPECT_EQ(tensor.blocks(kRow).code(0, 15), 0xA);
  const Tensor values = tensor.dequantize(DType::kF32, kRow);
  EXPECT_EQ(values.values<float>()[0], 2.0F);
  EXPECT_EQ(values.values<float>()[1], 12.0F);
  EXPECT_EQ(values.values<float>()[15], -2.0F);
  EXPECT_THAT(values.values<float>().subspan(2, 13), Each(0.0F));
}

TEST(BlockScaledTensor, PartsThatDoNotFitAreRefused) {
  BlockScaledCodes wrong = rowwise_mxfp8();
  wrong.scales = Tensor(DType::kE8M0, {64, 2});
  EXPECT_THROW(BlockScaledTensor({64, 64}, RecipeKind::kMxfp8, std::move(wrong), {}), Error);
  EXPECT_THROW(BlockScaledTensor({32, 64}, RecipeKind::kMxfp8, rowwise_mxfp8(), {}), Error);
  EXPECT_THROW(BlockScaledTensor({64, 64}, RecipeKind::kCurrent, rowwise_mxfp8(), {}), Error);
  EXPECT_THROW(BlockScaledTensor({64, 64}, RecipeKind::kMxfp8, {}, {}), Error);
}

TEST(QuantizerFactory, PerTensorRecipes) {
  DelayedScalingState state({}, nullptr);
  const auto delayed = make_quantizer({.recipe = RecipeKind::kDelayed,
                                       .tensor = TensorKind::kGradient,
                                       .name = "fc1.gradient",
                                       .delayed = &state});
  EXPECT_EQ(delayed->recipe(), RecipeKind::kDelayed);
  EXPECT_EQ(delayed->format(), DType::kE5M2);
  ASSERT_EQ(state.size(), 1U);
  EXPECT_EQ(state.slot(0).name, "fc1.gradient");

  QuantizerRequest request{.recipe = RecipeKind::kCurrent, .tensor = TensorKind::kWeight};
  EXPECT_EQ(make_quantizer(request)->format(), DType::kE4M3);
  request.format = DType::kE5M2;
  request.options.current.power_of_two = true;
  request.reduce_amaxes = [](const MutableTensorView& amaxes) {
    ASSERT_EQ(amaxes.numel(), 1);
    amaxes.values<std::uint32_t>()[0] = std::bit_cast<std::uint32_t>(3.0F);
  };
  const auto current = make_quantizer(request);
  EXPECT_EQ(current->format(), DType::kE5M2);
  const auto codes = current->quantize(Tensor::of({1.0F}, Shape{1}), {}, {});
  EXPECT_EQ(dynamic_cast<const Float8Tensor&>(*codes).scale(), 16384.0F) << "57344 / 3, rounded down to 2^14";
}

TEST(QuantizerFactory, Refusals) {
  EXPECT_THROW(static_cast<void>(make_quantizer({.recipe = RecipeKind::kNone})), Error);
  EXPECT_THROW(static_cast<void>(make_quantizer({.recipe = RecipeKind::kDelayed})), Error);
  EXPECT_THROW(static_cast<void>(make_quantizer({.tensor = TensorKind::kOutput})), Error);
  EXPECT_THROW(static_cast<void>(make_quantizer({.format = DType::kF32})), Error);
}

}  // namespace
}  // namespace amaxscope
