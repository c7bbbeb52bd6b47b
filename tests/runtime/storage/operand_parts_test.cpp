// Per-tensor and high-precision operands: tests/features/dump_tensors_test.cpp. Here those with blocks.
#include "runtime/storage/operand_parts.hpp"

#include "runtime/quantizers/block_scaled_tensor.hpp"
#include "tests/runtime/storage/storage_fixture.hpp"

namespace amaxscope {
namespace {

using ::testing::ElementsAre;
using testing::view_bytes;

class OperandPartsTest : public testing::StorageTest {
 protected:
  /// The operand written and read again.
  SafetensorsFile written(const QuantizedTensor& operand) {
    for (const Direction direction : {Direction::kRowwise, Direction::kColumnwise}) {
      parts_.add_direction(operand, direction);
    }
    write_safetensors(folder_ / "x.safetensors", parts_.tensors(), parts_.formats());
    return SafetensorsFile(folder_ / "x.safetensors");
  }
  OperandParts parts_;
};

void fill(Tensor& tensor, int step) {
  auto* bytes = static_cast<unsigned char*>(tensor.mutable_view().data());
  for (std::size_t i = 0; i < tensor.bytes(); ++i)
    bytes[i] = static_cast<unsigned char>(i * static_cast<std::size_t>(step));
}

TEST_F(OperandPartsTest, PowerOfTwoScalesAreBytesAndTheirPaddingIsKept) {
  BlockScaledCodes rowwise;
  rowwise.layout = {.format = DType::kE5M2,
                    .block_rows = 1,
                    .block_cols = 32,
                    .scale_rows = 1,
                    .scale_cols = 32,
                    .pad_rows = 128,
                    .pad_cols = 4};
  rowwise.codes = Tensor(DType::kE5M2, {4, 32});
  rowwise.scales = Tensor(DType::kE8M0, {128, 4});
  fill(rowwise.codes, 3);
  rowwise.scales.values<std::uint8_t>()[4] = 130;  // row 1
  const Tensor codes = rowwise.codes.clone();
  const BlockScaledTensor tensor({2, 2, 32}, RecipeKind::kMxfp8, std::move(rowwise), {});
  const SafetensorsFile file = written(tensor);
  ASSERT_EQ(file.tensors().size(), 2U);
  EXPECT_EQ(file.at("rowwise").type, "F8_E5M2");
  EXPECT_EQ(file.at("rowwise").shape(), Shape({2, 2, 32}));
  EXPECT_EQ(view_bytes(file.read(file.at("rowwise"))), view_bytes(codes));
  EXPECT_EQ(file.at("rowwise_scale_inv").type, "U8");
  EXPECT_EQ(file.at("rowwise_scale_inv").shape(), Shape({128, 4}));
  const Tensor scales = file.read(file.at("rowwise_scale_inv"));
  EXPECT_EQ(scales.values<std::uint8_t>()[4], 130);
  EXPECT_EQ(std::ranges::count(scales.values<std::uint8_t>(), 0), 511);
  EXPECT_EQ(file.metadata().at("rowwise_format"), "e5m2");
  EXPECT_EQ(file.metadata().at("rowwise_block"), "1x32");
  EXPECT_FALSE(file.metadata().contains("rowwise_codes"));
}

TEST_F(OperandPartsTest, PackedElementsAreBytesWithTheAmaxBeside) {
  BlockScaledCodes columnwise;
  columnwise.layout = {.format = DType::kE2M1,
                       .scale_format = DType::kE4M3,
                       .block_rows = 16,
                       .block_cols = 1,
                       .scale_rows = 16,
                       .scale_cols = 1,
                       .codes_transposed = true,
                       .scales_transposed = true,
                       .pad_rows = 128,
                       .pad_cols = 4};
  columnwise.codes = Tensor(DType::kE2M1, {32, 16});
  columnwise.scales = Tensor(DType::kE4M3, {128, 4});
  columnwise.tensor_scale = TensorScale{.amax = 7.5F, .factor = 1.0F / 2688.0F};
  columnwise.rotated = true;
  fill(columnwise.codes, 7);
  fill(columnwise.scales, 1);
  const Tensor codes = columnwise.codes.clone();
  const BlockScaledTensor tensor({16, 32}, RecipeKind::kNvfp4, {}, std::move(columnwise));
  const SafetensorsFile file = written(tensor);
  EXPECT_EQ(file.at("columnwise").type, "U8");
  EXPECT_EQ(file.at("columnwise").shape(), Shape({32, 8}));
  EXPECT_EQ(view_bytes(file.read(file.at("columnwise"))), view_bytes(codes));
  EXPECT_EQ(file.at("columnwise_scale_inv").type, "F8_E4M3");
  EXPECT_THAT(file.read(file.at("columnwise_amax")).values<float>(), ElementsAre(7.5F));
  EXPECT_EQ(file.metadata().at("columnwise_format"), "e2m1");
  EXPECT_EQ(file.metadata().at("columnwise_block"), "16x1");
  EXPECT_EQ(file.metadata().at("columnwise_codes"), "transposed");
  EXPECT_EQ(file.metadata().at("columnwise_scales"), "transposed");
  EXPECT_EQ(file.metadata().at("columnwise_rotated"), "true");
}

}  // namespace
}  // namespace amaxscope
