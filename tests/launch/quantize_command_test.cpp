// `amaxscope quantize`: files in, codes out, checked against codes worked out by hand.
#include "tests/launch/tensor_files_fixture.hpp"

namespace amaxscope::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class QuantizeCommand : public TensorFilesTest {};

// amax 4: scale 448 / 4 = 112, so 4 -> 448 = 0x7E, 1 -> 112 = 0x6E, -2 -> -224 = 0xF6, 0 -> 0x00. 1/112 in
// fp32.
TEST_F(QuantizeCommand, CurrentScalingOfFourNumbers) {
  npy("x.npy", Tensor::of<float>({4, 1, -2, 0}, Shape{2, 2}));
  const ProgramResult result =
      amaxscope({"quantize", "x.npy", "-o", "out.safetensors", "--recipe", "current"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("x.npy: f32 [2, 2], recipe current"), HasSubstr("written to out.safetensors")));
  const SafetensorsFile file(folder_ / "out.safetensors");
  EXPECT_EQ(file.at("rowwise").type, "F8_E4M3");
  EXPECT_EQ(bytes_of(file.read(file.at("rowwise"))), std::string("\x7E\x6E\xF6\x00", 4));
  EXPECT_EQ(bytes_of(file.read(file.at("columnwise"))), std::string("\x7E\xF6\x6E\x00", 4));
  EXPECT_THAT(file.read(file.at("rowwise_scale_inv")).values<float>(), ElementsAre(1.0F / 112.0F));
  EXPECT_EQ(file.metadata().at("scale"), "112");
  EXPECT_EQ(file.metadata().at("amax"), "4");
  EXPECT_EQ(file.metadata().at("recipe"), "current");
  EXPECT_EQ(file.metadata().at("rowwise_format"), "e4m3");
}

// The one entry of the history is the tensor's own amax: 57344 / 4 = 14336. 4 -> 57344 = 0x7B, 1 -> 14336 =
// 0x73.
TEST_F(QuantizeCommand, DelayedScalingHasTheTensorInItsHistory) {
  npy("x.npy", Tensor::of<float>({4, 1}, Shape{1, 2}));
  ASSERT_EQ(amaxscope({"quantize", "x.npy", "-o", "out.safetensors", "--recipe", "delayed", "--format",
                       "e5m2", "--usage", "rowwise"})
                .status,
            0);
  const SafetensorsFile file(folder_ / "out.safetensors");
  EXPECT_EQ(file.tensors().size(), 2U);
  EXPECT_EQ(file.at("rowwise").type, "F8_E5M2");
  EXPECT_EQ(bytes_of(file.read(file.at("rowwise"))), "\x7B\x73");
  EXPECT_EQ(file.metadata().at("scale"), "14336");
}

// 32 ones and 32 twos in a row: amax / 448 rounds up to 2^-8 and 2^-7, bytes 119 and 120; codes 256 = 0x78
// each.
TEST_F(QuantizeCommand, Mxfp8HasAByteForThirtyTwo) {
  std::vector<float> values(32 * 64, 1.0F);
  for (std::size_t row = 0; row < 32; ++row)
    std::fill_n(values.begin() + static_cast<long>(row * 64 + 32), 32, 2.0F);
  npy("x.npy", Tensor::of<float>(values, Shape{32, 64}));
  ASSERT_EQ(amaxscope({"quantize", "x.npy", "-o", "out.safetensors", "--recipe", "mxfp8"}).status, 0);
  const SafetensorsFile file(folder_ / "out.safetensors");
  EXPECT_EQ(bytes_of(file.read(file.at("rowwise"))), std::string(32 * 64, '\x78'));
  EXPECT_EQ(bytes_of(file.read(file.at("columnwise"))), std::string(32 * 64, '\x78'));
  EXPECT_EQ(file.at("rowwise_scale_inv").shape(), Shape({128, 4}));
  const Tensor scales = file.read(file.at("rowwise_scale_inv"));
  EXPECT_EQ(scales.values<std::uint8_t>()[0], 119);
  EXPECT_EQ(scales.values<std::uint8_t>()[1], 120);
  EXPECT_EQ(scales.values<std::uint8_t>()[2], 0);  // padding
  EXPECT_EQ(file.at("columnwise_scale_inv").shape(), Shape({4, 128}));
  EXPECT_EQ(file.read(file.at("columnwise_scale_inv")).values<std::uint8_t>()[32], 120);
  EXPECT_EQ(file.metadata().at("rowwise_block"), "1x32");
}

// One scale for 128 x 128: 448 / 4 = 112, rounded down to 64; 4 -> 256 = 0x78, 1 -> 64 = 0x68.
TEST_F(QuantizeCommand, SquareBlocksOfBlockScaling) {
  npy("x.npy", Tensor::of<float>({4, 1, 1, 1}, Shape{2, 2}));
  ASSERT_EQ(
      amaxscope({"quantize", "x.npy", "-o", "out.safetensors", "--recipe", "block", "--layout", "2d"}).status,
      0);
  const SafetensorsFile file(folder_ / "out.safetensors");
  EXPECT_EQ(bytes_of(file.read(file.at("rowwise"))), "\x78\x68\x68\x68");
  EXPECT_EQ(file.at("rowwise_scale_inv").shape(), Shape({1, 4}));
  EXPECT_THAT(file.read(file.at("rowwise_scale_inv")).values<float>(), ElementsAre(1.0F / 64.0F, 0, 0, 0));
  EXPECT_EQ(file.metadata().at("rowwise_block"), "128x128");
}

TEST_F(QuantizeCommand, Nvfp4CodesArePackedBytesWithTheAmaxBeside) {
  npy("x.npy", Tensor::of<float>(std::vector<float>(16 * 16, 3.0F), Shape{16, 16}));
  ASSERT_EQ(amaxscope({"quantize", "x.npy", "-o", "out.safetensors", "--recipe", "nvfp4"}).status, 0);
  const SafetensorsFile file(folder_ / "out.safetensors");
  EXPECT_EQ(file.at("rowwise").type, "U8");
  EXPECT_EQ(file.at("rowwise").shape(), Shape({16, 8}));
  // Every element is the amax of its block: code 7, twice in a byte.
  EXPECT_EQ(bytes_of(file.read(file.at("rowwise"))), std::string(16 * 8, '\x77'));
  EXPECT_THAT(file.read(file.at("rowwise_amax")).values<float>(), ElementsAre(3.0F));
  EXPECT_FALSE(file.metadata().contains("columnwise_rotated"));
}

TEST_F(QuantizeCommand, DoubleIsRoundedAndItIsSaid) {
  npy("x.npy", Tensor::of<double>({4, 1}, Shape{1, 2}));
  const ProgramResult result = amaxscope({"quantize", "x.npy", "-o", "out.safetensors"});
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.err, HasSubstr("f64 is rounded to f32 first"));
  const SafetensorsFile file(folder_ / "out.safetensors");
  EXPECT_EQ(bytes_of(file.read(file.at("rowwise"))), "\x7E\x6E");
}

TEST_F(QuantizeCommand, WrongUseEndsWithTwoAndOneLine) {
  npy("x.npy", Tensor::of<float>({4, 1}, Shape{1, 2}));
  npy("i.npy", Tensor::of<std::int64_t>({4, 1}, Shape{1, 2}));
  const auto refusal = [&](const std::vector<std::string>& arguments) {
    std::vector<std::string> all = {"quantize", "-o", "out.safetensors"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const ProgramResult result = amaxscope(all);
    EXPECT_EQ(result.status, 2) << result.err;
    EXPECT_EQ(lines_of(result.err).size(), 1U) << result.err;
    EXPECT_FALSE(exists("out.safetensors"));
    return result.err;
  };
  EXPECT_THAT(refusal({"absent.npy"}), HasSubstr("absent.npy: there is no such file"));
  EXPECT_THAT(refusal({"i.npy"}), HasSubstr("i.npy: is <i8; f64, f32, f16 and bf16 can be quantized"));
  EXPECT_THAT(refusal({"x.npy", "--recipe", "fp8"}), HasSubstr("--recipe fp8: unknown"));
  EXPECT_THAT(refusal({"x.npy", "--recipe", "none"}), HasSubstr("quantizes nothing"));
  EXPECT_THAT(refusal({"x.npy", "--layout", "2d"}), HasSubstr("has one scale for the tensor"));
  EXPECT_THAT(refusal({"x.npy", "--recipe", "nvfp4", "--format", "e5m2"}),
              HasSubstr("the codes of nvfp4 are e2m1"));
  EXPECT_THAT(refusal({"x.npy", "--format", "e3m4"}), HasSubstr("e3m4"));
  // 1 x 2 is no multiple of 32.
  EXPECT_THAT(refusal({"x.npy", "--recipe", "mxfp8"}), HasSubstr("x.npy: "));
  write("cut.npy", "\x93NUMPY");
  EXPECT_THAT(refusal({"cut.npy"}), HasSubstr("cut.npy: "));
}

TEST_F(QuantizeCommand, AFolderThatIsNotThereIsAFailure) {
  npy("x.npy", Tensor::of<float>({4, 1}, Shape{1, 2}));
  const ProgramResult result = amaxscope({"quantize", "x.npy", "-o", "absent/out.safetensors"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("absent/out.safetensors: cannot be written"));
}

}  // namespace
}  // namespace amaxscope::test
