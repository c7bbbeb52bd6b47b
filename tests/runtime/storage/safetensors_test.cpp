#include "runtime/storage/safetensors.hpp"

#include "tests/runtime/storage/storage_fixture.hpp"

namespace amaxscope {
namespace {

using testing::bytes_of;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::safetensors_of;
using testing::view_bytes;

class SafetensorsTest : public testing::StorageTest {
 protected:
  [[nodiscard]] std::string refusal(const std::string& bytes) const {
    const std::filesystem::path path = write("hostile.safetensors", bytes);
    return error_of([&] { const SafetensorsFile file(path); });
  }
};

/// Written by hand after the format's description: two tensors, a note, padding to a multiple of eight.
TEST_F(SafetensorsTest, ReadsBytesWrittenByHand) {
  const std::string header =
      R"({"__metadata__":{"note":"by hand"},"w":{"dtype":"F32","shape":[2,1],"data_offsets":[2,10]},)"
      R"("b":{"dtype":"BF16","shape":[],"data_offsets":[0,2]}}   )";
  // bf16 1.5 is 0x3FC0, f32 -2 is 0xC0000000, f32 0.5 is 0x3F000000; the low byte first.
  const std::string data("\xC0\x3F\x00\x00\x00\xC0\x00\x00\x00\x3F", 10);
  const SafetensorsFile file(write("hand.safetensors", safetensors_of(header, data)));

  ASSERT_EQ(file.tensors().size(), 2U);
  EXPECT_EQ(file.tensors()[0].name, "w");
  EXPECT_EQ(file.tensors()[0].type, "F32");
  EXPECT_EQ(file.tensors()[0].shape(), Shape({2, 1}));
  EXPECT_EQ(file.tensors()[1].shape(), Shape());
  EXPECT_EQ(file.metadata().at("note"), "by hand");
  EXPECT_THAT(file.read(file.at("w")).values<float>(), ElementsAre(-2.0F, 0.5F));
  EXPECT_EQ(file.read(file.at("b")).values<BF16>()[0].bits, 0x3FC0);
}

TEST_F(SafetensorsTest, WritesTheBytesOfTheFormat) {
  const Tensor narrow = Tensor::of<BF16>({BF16{0x3FC0}}, Shape{1});
  const Tensor wide = Tensor::of<float>({-2.0F}, Shape{});
  write_safetensors(folder_ / "out.safetensors", {{{"n", narrow}, {"w", wide}}}, {{"layer", "fc1"}});
  // Wider elements first, then the header is filled to a multiple of eight.
  std::string header =
      R"({"__metadata__":{"layer":"fc1"},"w":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
      R"("n":{"dtype":"BF16","shape":[1],"data_offsets":[4,6]}})";
  header.append((8 - header.size() % 8) % 8, ' ');
  EXPECT_EQ(read("out.safetensors"), safetensors_of(header, std::string("\x00\x00\x00\xC0\xC0\x3F", 6)));
  EXPECT_EQ(files(), 1U);
}

TEST_F(SafetensorsTest, EveryTypeComesBackBitForBit) {
  std::vector<Tensor> tensors;
  std::vector<NamedTensor> named;
  const std::vector<DType> dtypes = {DType::kF64,  DType::kF32,  DType::kF16, DType::kBF16,
                                     DType::kE4M3, DType::kE5M2, DType::kU8,  DType::kU32,
                                     DType::kI32,  DType::kU64,  DType::kI64};
  for (const DType dtype : dtypes) {
    Tensor& tensor = tensors.emplace_back(dtype, Shape{3, 5});
    auto* bytes = static_cast<unsigned char*>(tensor.mutable_view().data());
    for (std::size_t i = 0; i < tensor.bytes(); ++i)
      bytes[i] = static_cast<unsigned char>(i * 37 + named.size());
    named.push_back({std::string(to_string(dtype)), tensor.view()});
  }
  write_safetensors(folder_ / "all.safetensors", named);
  const SafetensorsFile file(folder_ / "all.safetensors");
  ASSERT_EQ(file.tensors().size(), dtypes.size());
  for (std::size_t i = 0; i < dtypes.size(); ++i) {
    const StoredTensor& stored = file.at(to_string(dtypes[i]));
    EXPECT_EQ(stored.dtype, dtypes[i]);
    EXPECT_EQ(view_bytes(file.read(stored)), view_bytes(tensors[i])) << to_string(dtypes[i]);
  }
}

TEST_F(SafetensorsTest, ShapesFromNoneToFiveDimensionsAndWithoutElements) {
  const std::vector<Shape> shapes = {Shape{}, Shape{0}, Shape{4, 0}, Shape{2, 3, 1, 2, 2},
                                     Shape{1, 1, 1, 1, 1, 1}};
  std::vector<Tensor> tensors;
  std::vector<NamedTensor> named;
  for (const Shape& shape : shapes) {
    Tensor& tensor = tensors.emplace_back(DType::kF32, shape);
    std::ranges::fill(tensor.values<float>(), static_cast<float>(named.size() + 1));
    named.push_back({std::to_string(named.size()), tensor.view()});
  }
  write_safetensors(folder_ / "shapes.safetensors", named);
  EXPECT_EQ(std::filesystem::file_size(folder_ / "shapes.safetensors"), safetensors_bytes(named));
  const SafetensorsFile file(folder_ / "shapes.safetensors");
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const StoredTensor& stored = file.at(std::to_string(i));
    EXPECT_EQ(stored.shape(), shapes[i]);
    EXPECT_EQ(view_bytes(file.read(stored)), view_bytes(tensors[i])) << i;
  }
}

TEST_F(SafetensorsTest, AFileWithoutTensorsIsOne) {
  write_safetensors(folder_ / "none.safetensors", {});
  EXPECT_TRUE(SafetensorsFile(folder_ / "none.safetensors").tensors().empty());
}

TEST_F(SafetensorsTest, ReadsRowsOfLeadingDimensions) {
  std::vector<float> values(2 * 3 * 2);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const Tensor tensor = Tensor::of<float>(values, Shape{2, 3, 2});
  write_safetensors(folder_ / "rows.safetensors", {{{"x", tensor}}});
  const SafetensorsFile file(folder_ / "rows.safetensors");
  const Tensor rows = file.read_rows(file.at("x"), 2, 3);
  EXPECT_EQ(rows.shape(), Shape({3, 2}));
  EXPECT_THAT(rows.values<float>(), ElementsAre(4, 5, 6, 7, 8, 9));
  EXPECT_EQ(file.read_rows(file.at("x"), 6, 0).numel(), 0);
  EXPECT_THAT(error_of([&] { static_cast<void>(file.read_rows(file.at("x"), 5, 2)); }),
              AllOf(HasSubstr("usage"), HasSubstr("has 6 rows, asked were 2 from 5 on")));
}

TEST_F(SafetensorsTest, PaddedRowsAreWrittenWithoutThePadding) {
  const Tensor padded = Tensor::of<float>({1, 2, -9, 3, 4, -9}, Shape{2, 3});
  const TensorView view(padded.view().data(), DType::kF32, Shape{2, 2}, {}, {}, 3);
  write_safetensors(folder_ / "padded.safetensors", {{{"x", view}}});
  const SafetensorsFile file(folder_ / "padded.safetensors");
  EXPECT_THAT(file.read(file.at("x")).values<float>(), ElementsAre(1, 2, 3, 4));
}

TEST_F(SafetensorsTest, NamesMayBeAnyText) {
  const Tensor one = Tensor::of<float>({1}, Shape{1});
  const std::string name = "a \"b\"\\/\t\n\xC3\xA9 ..";
  write_safetensors(folder_ / "names.safetensors", {{{name, one}}}, {{name, name}});
  const SafetensorsFile file(folder_ / "names.safetensors");
  EXPECT_NE(file.find(name), nullptr);
  EXPECT_EQ(file.metadata().at(name), name);
  EXPECT_THAT(error_of([&] { static_cast<void>(file.at("b")); }), HasSubstr("has no tensor \"b\""));
}

TEST_F(SafetensorsTest, RefusesToWriteANameTwice) {
  const Tensor one = Tensor::of<float>({1}, Shape{1});
  EXPECT_THAT(error_of([&] {
                write_safetensors(folder_ / "x.safetensors", {{{"a", one}, {"a", one}}});
              }),
              HasSubstr("cannot hold the name \"a\" twice"));
  EXPECT_THAT(error_of([&] {
                write_safetensors(folder_ / "x.safetensors", {{{"__metadata__", one}}});
              }),
              HasSubstr("cannot hold the name \"__metadata__\" for a tensor"));
  EXPECT_EQ(files(), 0U);
}

TEST_F(SafetensorsTest, AFailedWriteLeavesTheOldFileAndNoOther) {
  const Tensor one = Tensor::of<float>({1}, Shape{1});
  std::filesystem::create_directory(folder_ / "taken.safetensors");
  EXPECT_THAT(error_of([&] {
                write_safetensors(folder_ / "taken.safetensors", {{{"a", one}}});
              }),
              AllOf(HasSubstr("io: "), HasSubstr("taken.safetensors: cannot be written")));
  EXPECT_EQ(files(), 1U);
  EXPECT_THAT(error_of([&] {
                write_safetensors(folder_ / "absent" / "x.safetensors", {{{"a", one}}});
              }),
              HasSubstr("io: "));
}

TEST_F(SafetensorsTest, TypesThatNothingHereComputesWithAreListed) {
  const std::string header = R"({"flags":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]},)"
                             R"("later":{"dtype":"F7_X","shape":[9],"data_offsets":[2,3]},)"
                             R"("deep":{"dtype":"U8","shape":[1,1,1,1,1,1,1],"data_offsets":[3,4]}})";
  const SafetensorsFile file(write("types.safetensors", safetensors_of(header, "abcd")));
  EXPECT_EQ(file.at("flags").unreadable(), "its type BOOL is not supported");
  EXPECT_EQ(file.at("later").unreadable(), "its type F7_X is not supported");
  EXPECT_EQ(file.at("deep").unreadable(), "it has 7 dimensions, at most 6 are supported");
  EXPECT_THAT(error_of([&] { static_cast<void>(file.read(file.at("flags"))); }),
              HasSubstr("input: tensor \"flags\" cannot be read: its type BOOL is not supported"));
}

struct Hostile {
  const char* name;
  std::string header;
  std::string data;
  const char* says;
  // Not byte by byte, as GoogleTest would do: there is padding between them.
  friend void PrintTo(const Hostile& hostile, std::ostream* out) { *out << hostile.name; }
};

class HostileHeader : public SafetensorsTest, public ::testing::WithParamInterface<Hostile> {};

TEST_P(HostileHeader, IsRefusedWithItsReason) {
  const std::string message = refusal(safetensors_of(GetParam().header, GetParam().data));
  EXPECT_THAT(message,
              AllOf(HasSubstr("input: "), HasSubstr("hostile.safetensors: "), HasSubstr(GetParam().says)));
}

std::string tensor(const std::string& fields) { return R"({"x":{)" + fields + "}}"; }

INSTANTIATE_TEST_SUITE_P(
    Safetensors, HostileHeader,
    ::testing::Values(
        Hostile{"NotJson", "hello", "", "is not JSON at byte"},  //
        Hostile{"Empty", "", "", "is not JSON"},                 //
        Hostile{"CutOff", R"({"x":{"dtype")", "", "is not JSON"},
        Hostile{"TextBehind", "{} {}", "", "is not JSON at byte"},  //
        Hostile{"AList", "[]", "", "holds an array where an object is needed"},
        Hostile{"ANumber", "7", "", "holds the number 7 where an object is needed"},
        Hostile{"NotUtf8", "{\"\xFF\":{}}", "", "is not JSON at byte"},
        Hostile{"ANull", R"({"x":null})", "", "tensor \"x\" holds null"},
        Hostile{"Deep", std::string(100000, '['), "", "holds an array where"},
        Hostile{"DeepInside", R"({"x":)" + std::string(100000, '['), "", "tensor \"x\" holds an array"},
        Hostile{"DeepObjects", R"({"x":{"dtype":{"a":{"a":{)", "", "has an object as dtype"},
        Hostile{"MetadataOfNumbers", R"({"__metadata__":{"a":1}})", "", "__metadata__ holds the number 1"},
        Hostile{"MetadataAList", R"({"__metadata__":[]})", "", "__metadata__ holds an array"},
        Hostile{"MetadataTwice", R"({"__metadata__":{},"__metadata__":{}})", "", "has __metadata__ twice"},
        Hostile{"MetadataKeyTwice", R"({"__metadata__":{"a":"1","a":"2"}})", "", "metadata key \"a\" twice"},
        Hostile{"NoType", tensor(R"("shape":[],"data_offsets":[0,0])"), "", "tensor \"x\" has no dtype"},
        Hostile{"NoShape", tensor(R"("dtype":"F32","data_offsets":[0,0])"), "", "has no shape"},
        Hostile{"NoOffsets", tensor(R"("dtype":"F32","shape":[0])"), "", "has no data_offsets"},
        Hostile{"TypeTwice", tensor(R"("dtype":"F32","dtype":"U8","shape":[0],"data_offsets":[0,0])"), "",
                "has dtype twice"},
        Hostile{"UnknownKey", tensor(R"("type":"F32")"), "",
                "has the key \"type\"; allowed are dtype, shape"},
        Hostile{"TypeANumber", tensor(R"("dtype":4)"), "", "has the number 4 as dtype"},
        Hostile{"OneOffset", tensor(R"("dtype":"U8","shape":[0],"data_offsets":[0])"), "",
                "has 1 data_offsets, not two"},
        Hostile{"ThreeOffsets", tensor(R"("dtype":"U8","shape":[0],"data_offsets":[0,0,0])"), "",
                "more than two data_offsets"},
        Hostile{"NegativeOffset", tensor(R"("dtype":"U8","shape":[0],"data_offsets":[-1,0])"), "",
                "has the number -1 in data_offsets"},
        Hostile{"HugeOffset", tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0,18446744073709551615])"),
                "a", "lies at bytes 0 to 18446744073709551615 of 1 bytes of data"},
        Hostile{"OffsetTooLargeForAnyNumber",
                tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0,184467440737095516150])"), "a",
                "in data_offsets"},
        Hostile{"Backwards", tensor(R"("dtype":"U8","shape":[1],"data_offsets":[1,0])"), "a",
                "lies at bytes 1 to 0"},
        Hostile{"PastTheEnd", tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])"), "1234",
                "lies at bytes 0 to 8 of 4 bytes of data; the file is cut off"},
        Hostile{"TooFewBytes", tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"), "1234",
                "F32 of shape [2], has 4 bytes of data"},
        Hostile{"TooManyBytes", tensor(R"("dtype":"F16","shape":[1],"data_offsets":[0,4])"), "1234",
                "F16 of shape [1], has 4 bytes of data"},
        Hostile{"BytesForNoElement", tensor(R"("dtype":"F32","shape":[0,7],"data_offsets":[0,4])"), "1234",
                "of shape [0, 7], has 4 bytes of data"},
        Hostile{"NegativeExtent", tensor(R"("dtype":"U8","shape":[-1],"data_offsets":[0,0])"), "",
                "has the number -1 in shape"},
        Hostile{"FractionalExtent", tensor(R"("dtype":"U8","shape":[1.5],"data_offsets":[0,0])"), "",
                "has the number 1.5 in shape"},
        Hostile{"ExtentOfText", tensor(R"("dtype":"U8","shape":["1"],"data_offsets":[0,1])"), "a",
                "has a string in shape"},
        Hostile{"ExtentTooLarge",
                tensor(R"("dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,1])"), "a",
                "has the extent 9223372036854775808"},
        // 2^32 * 2^32 elements are 0 modulo 2^64: the product must not wrap to what the offsets say.
        Hostile{"WrappingProduct",
                tensor(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])"), "",
                "has too many elements"},
        // 2^62 elements of four bytes are 2^64 bytes: 0 in 64 bits.
        Hostile{"WrappingBytes",
                tensor(R"("dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0])"), "",
                "has 0 bytes of data, which is not what that needs"},
        Hostile{"ManyDimensions",
                tensor(R"("dtype":"U8","shape":[)" +
                       [] {
                         std::string ones = "1";
                         for (int i = 0; i < 100; ++i) ones += ",1";
                         return ones;
                       }() +
                       R"(],"data_offsets":[0,1])"),
                "a", "has more than 64 dimensions"},
        Hostile{
            "SameNameTwice",
            R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"x":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
            "ab", "has two tensors named \"x\""},
        Hostile{
            "Overlap",
            R"({"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"y":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
            "abc", "tensors \"x\" and \"y\" share bytes 1 to 2"},
        Hostile{
            "AGap",
            R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"y":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
            "abc", "bytes 1 to 2 of the data belong to no tensor"},
        Hostile{"ATail", "{}", "abc", "bytes 0 to 3 of the data belong to no tensor"}),
    [](const ::testing::TestParamInfo<Hostile>& one) { return std::string(one.param.name); });

TEST_F(SafetensorsTest, HeaderLengthIsBounded) {
  EXPECT_THAT(refusal(""), HasSubstr("has 0 bytes; a safetensors file begins with the length"));
  EXPECT_THAT(refusal("1234567"), HasSubstr("has 7 bytes"));
  EXPECT_THAT(refusal(bytes_of<std::uint64_t>(~0ULL) + "{}"),
              HasSubstr("header has 18446744073709551615 bytes, at most"));
  EXPECT_THAT(refusal(bytes_of<std::uint64_t>(100'000'001) + "{}"),
              HasSubstr("at most 100000000 are allowed"));
  EXPECT_THAT(refusal(bytes_of<std::uint64_t>(3) + "{}"),
              HasSubstr("header has 3 bytes, but the file ends after 2"));
}

TEST_F(SafetensorsTest, WhatIsNoFileIsSaidToBeNone) {
  EXPECT_THAT(error_of([&] { const SafetensorsFile file(folder_ / "absent.safetensors"); }),
              AllOf(HasSubstr("input: "), HasSubstr("there is no such file")));
  EXPECT_THAT(error_of([&] { const SafetensorsFile file(folder_); }), HasSubstr("is a directory"));
}

TEST_F(SafetensorsTest, AFileThatShrinksAfterItWasOpenedIsAnError) {
  const Tensor tensor(DType::kF32, Shape{1000});
  write_safetensors(folder_ / "x.safetensors", {{{"x", tensor}}});
  const SafetensorsFile file(folder_ / "x.safetensors");
  std::filesystem::resize_file(folder_ / "x.safetensors", 1000);
  EXPECT_THAT(error_of([&] { static_cast<void>(file.read(file.at("x"))); }),
              AllOf(HasSubstr("io: "), HasSubstr("ends at byte 1000")));
}

TEST_F(SafetensorsTest, ATensorOfAnotherFileIsRefused) {
  const Tensor one = Tensor::of<float>({1}, Shape{1});
  write_safetensors(folder_ / "a.safetensors", {{{"a", one}}});
  write_safetensors(folder_ / "b.safetensors", {{{"b", one}}});
  const SafetensorsFile a(folder_ / "a.safetensors");
  const SafetensorsFile b(folder_ / "b.safetensors");
  EXPECT_THAT(error_of([&] { static_cast<void>(a.read(b.at("b"))); }), HasSubstr("is of another file"));
}

}  // namespace
}  // namespace amaxscope
