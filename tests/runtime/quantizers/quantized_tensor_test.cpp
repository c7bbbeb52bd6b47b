// E4M3 codes by hand: 0x38 is 1, 0x3C 1.5, 0x40 2, 0x44 3, 0x48 4, 0xB8 -1, 0x30 0.5.
#include "runtime/quantizers/quantized_tensor.hpp"

#include <gmock/gmock.h>

#include <cstring>

#include "core/error.hpp"
#include "runtime/quantizers/recipe.hpp"

namespace amaxscope {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr Direction kRow = Direction::kRowwise;
constexpr Direction kColumn = Direction::kColumnwise;

Tensor codes(std::initializer_list<std::uint8_t> bytes, Shape shape, DType format = DType::kE4M3) {
  Tensor tensor(format, shape);
  std::memcpy(tensor.mutable_view().data(), bytes.begin(), bytes.size());
  return tensor;
}

std::vector<std::uint8_t> bytes_of(const TensorView& view) {
  const auto values = view.values<std::uint8_t>();
  return {values.begin(), values.end()};
}

std::vector<float> floats_of(const Tensor& tensor) {
  const auto values = tensor.values<float>();
  return {values.begin(), values.end()};
}

/// 1 1.5 2 / 3 4 -1, in units of 2.
Float8Tensor rowwise_2x3() {
  return {Shape{2, 3}, DType::kE4M3, codes({0x38, 0x3C, 0x40, 0x44, 0x48, 0xB8}, Shape{2, 3}),
          Tensor(),    0.5F,         2.0F};
}

TEST(Float8Tensor, RowwiseIsTheLogicalMatrix) {
  const Float8Tensor tensor = rowwise_2x3();
  const GemmOperand operand = tensor.operand(kRow);
  EXPECT_EQ(operand.rows(), 2);
  EXPECT_EQ(operand.depth(), 3);
  EXPECT_FALSE(operand.transposed);
  EXPECT_EQ(operand.scale_inv, 2.0F);
  EXPECT_THAT(floats_of(tensor.dequantize(DType::kF32, kRow)), ElementsAre(2, 3, 4, 6, 8, -2));
}

TEST(Float8Tensor, ColumnwiseIsMadeFromRowwiseAndBack) {
  Float8Tensor tensor = rowwise_2x3();
  tensor.update_usage({true, true});
  EXPECT_EQ(tensor.usage(), (Usage{true, true}));
  const GemmOperand operand = tensor.operand(kColumn);
  EXPECT_EQ(operand.rows(), 3);
  EXPECT_EQ(operand.depth(), 2);
  EXPECT_THAT(bytes_of(tensor.codes(kColumn)), ElementsAre(0x38, 0x44, 0x3C, 0x48, 0x40, 0xB8));
  EXPECT_THAT(floats_of(tensor.dequantize(DType::kF32, kColumn)), ElementsAre(2, 3, 4, 6, 8, -2));

  tensor.update_usage({false, true});
  EXPECT_THROW(static_cast<void>(tensor.codes(kRow)), Error);
  tensor.update_usage({true, false});
  EXPECT_THAT(bytes_of(tensor.codes(kRow)), ElementsAre(0x38, 0x3C, 0x40, 0x44, 0x48, 0xB8));
  EXPECT_EQ(tensor.usage(), (Usage{true, false}));
}

TEST(Float8Tensor, AMissingDirectionIsNamed) {
  Float8Tensor tensor = rowwise_2x3();
  try {
    static_cast<void>(tensor.operand(kColumn));
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_THAT(error.what(), HasSubstr("columnwise"));
  }
  tensor.update_usage({false, false});
  EXPECT_EQ(tensor.usage(), (Usage{false, false}));
  EXPECT_THROW(tensor.update_usage({true, false}), Error);
}

TEST(Float8Tensor, HigherRanksKeepTheirShape) {
  Float8Tensor tensor(Shape{2, 1, 3}, DType::kE4M3,
                      codes({0x38, 0x3C, 0x40, 0x44, 0x48, 0xB8}, Shape{2, 1, 3}), Tensor(), 1.0F, 1.0F);
  EXPECT_EQ(tensor.operand(kRow).rows(), 2);
  tensor.update_usage({false, true});
  EXPECT_EQ(tensor.codes(kColumn).shape(), (Shape{3, 2}));
  EXPECT_EQ(tensor.dequantize(DType::kF32, kColumn).shape(), (Shape{2, 1, 3}));
  EXPECT_EQ(tensor.dequantize(DType::kF64, kColumn).values<double>()[5], -1.0);
}

TEST(Float8Tensor, CodesMustFitTheShape) {
  EXPECT_THROW(Float8Tensor(Shape{2, 3}, DType::kE4M3, Tensor(), Tensor(), 1, 1), Error);
  EXPECT_THROW(Float8Tensor(Shape{2, 3}, DType::kE4M3, Tensor(DType::kE4M3, {3, 2}), Tensor(), 1, 1), Error);
  EXPECT_THROW(Float8Tensor(Shape{2, 3}, DType::kE4M3, Tensor(), Tensor(DType::kE4M3, {2, 3}), 1, 1), Error);
  EXPECT_THROW(Float8Tensor(Shape{2, 3}, DType::kE4M3, Tensor(DType::kE5M2, {2, 3}), Tensor(), 1, 1), Error);
  EXPECT_THROW(Float8Tensor(Shape{2, 3}, DType::kF32, Tensor(DType::kF32, {2, 3}), Tensor(), 1, 1), Error);
}

TEST(Float8Tensor, AssignReplacesCodesAndScale) {
  Float8Tensor tensor = rowwise_2x3();
  tensor.assign(Tensor(), codes({0x38, 0x38, 0x38, 0x38, 0x38, 0x38}, Shape{3, 2}), 4.0F, 0.25F);
  EXPECT_EQ(tensor.usage(), (Usage{false, true}));
  EXPECT_EQ(tensor.scale(), 4.0F);
  EXPECT_THAT(floats_of(tensor.dequantize(DType::kF32, kColumn)), testing::Each(0.25F));
  EXPECT_THROW(tensor.assign(Tensor(DType::kE4M3, {2, 2}), Tensor(), 1, 1), Error);
}

TEST(Float8Tensor, NoElementsAreLegal) {
  Float8Tensor tensor(Shape{0, 8}, DType::kE5M2, Tensor(DType::kE5M2, {0, 8}), Tensor(), 1.0F, 1.0F);
  tensor.update_usage({true, true});
  EXPECT_EQ(tensor.operand(kColumn).rows(), 8);
  EXPECT_EQ(tensor.dequantize(DType::kF32, kRow).shape(), (Shape{0, 8}));
}

TEST(HighPrecisionTensor, BothDirectionsAreTheSameMemory) {
  const Tensor values = Tensor::of({1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F}, Shape{2, 3});
  const HighPrecisionTensor tensor(values.view());
  EXPECT_EQ(tensor.view().data(), values.view().data()) << "borrowed, not copied";
  EXPECT_EQ(tensor.operand(kRow).data.data(), tensor.operand(kColumn).data.data());
  EXPECT_EQ(tensor.operand(kRow).rows(), 2);
  EXPECT_TRUE(tensor.operand(kColumn).transposed);
  EXPECT_EQ(tensor.operand(kColumn).rows(), 3);
  EXPECT_EQ(tensor.operand(kColumn).depth(), 2);
  EXPECT_EQ(tensor.operand(kColumn).scale_inv, 1.0F);
  EXPECT_EQ(tensor.dequantize(DType::kBF16, kRow).values<BF16>()[2].bits, 0x4040);  // 3
}

TEST(HighPrecisionTensor, OnlyOwnedValuesCanBeAssigned) {
  HighPrecisionTensor owned(Tensor::of({1.0F, 2.0F}, Shape{2}));
  const Tensor fresh = Tensor::of({5.0F, 6.0F}, Shape{2});
  owned.assign(fresh);
  EXPECT_THAT(floats_of(owned.dequantize(DType::kF32, kRow)), ElementsAre(5, 6));
  EXPECT_THROW(owned.assign(Tensor::of({1.0F}, Shape{1})), Error);
  HighPrecisionTensor borrowed(fresh.view());
  EXPECT_THROW(borrowed.assign(fresh), Error);
  EXPECT_THROW(HighPrecisionTensor(Tensor(DType::kE4M3, {2})), Error);
}

TEST(Recipe, NamesAndFormats) {
  EXPECT_EQ(parse_recipe("delayed"), RecipeKind::kDelayed);
  EXPECT_EQ(parse_recipe("nvfp4"), RecipeKind::kNvfp4);
  EXPECT_FALSE(parse_recipe("fp8"));
  for (const RecipeKind recipe : {RecipeKind::kDelayed, RecipeKind::kCurrent}) {
    EXPECT_EQ(operand_format(recipe, TensorKind::kActivation), DType::kE4M3);
    EXPECT_EQ(operand_format(recipe, TensorKind::kWeight), DType::kE4M3);
    EXPECT_EQ(operand_format(recipe, TensorKind::kGradient), DType::kE5M2);
  }
  EXPECT_THROW(static_cast<void>(operand_format(RecipeKind::kNone, TensorKind::kWeight)), Error);
}

}  // namespace
}  // namespace amaxscope
