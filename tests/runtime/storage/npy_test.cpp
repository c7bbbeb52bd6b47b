#include "runtime/storage/npy.hpp"

#include "tests/runtime/storage/storage_fixture.hpp"

namespace amaxscope {
namespace {

using testing::bytes_of;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::view_bytes;

constexpr const char* kMagic = "\x93NUMPY";

/// A file of the given version with this header.
std::string npy(int version, const std::string& header, const std::string& data) {
  std::string bytes = kMagic;
  bytes += static_cast<char>(version);
  bytes += '\0';
  bytes += version == 1 ? bytes_of(static_cast<std::uint16_t>(header.size()))
                        : bytes_of(static_cast<std::uint32_t>(header.size()));
  return bytes + header + data;
}

std::string header_of(const std::string& descr, bool fortran, const std::string& shape) {
  return "{'descr': '" + descr + "', 'fortran_order': " + (fortran ? "True" : "False") +
         ", 'shape': " + shape + ", }\n";
}

std::string floats(const std::vector<float>& values) {
  std::string bytes;
  for (const float value : values) bytes += bytes_of(value);
  return bytes;
}

class NpyTest : public testing::StorageTest {
 protected:
  [[nodiscard]] std::string refusal(const std::string& bytes) const {
    const std::filesystem::path path = write("hostile.npy", bytes);
    return error_of([&] { const NpyFile file(path); });
  }
};

/// What numpy.save writes for an array of two f4, byte by byte: header length 118 so that data begin at 128.
TEST_F(NpyTest, WritesAndReadsTheBytesOfNumpy) {
  std::string expected("\x93NUMPY\x01\x00\x76\x00", 10);
  expected += "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }";
  expected.append(127 - expected.size(), ' ');
  expected += "\n";
  expected.append("\x00\x00\x80\x3F\x00\x00\x00\xC0", 8);  // 1 and -2, the low byte first
  ASSERT_EQ(expected.size(), 128U + 8U);

  write_npy(folder_ / "pair.npy", Tensor::of<float>({1.0F, -2.0F}, Shape{2}));
  EXPECT_EQ(read("pair.npy"), expected);
  const NpyFile file(write("hand.npy", expected));
  EXPECT_EQ(file.tensors()[0].name, "hand");
  EXPECT_EQ(file.tensors()[0].type, "<f4");
  EXPECT_THAT(file.read(file.tensors()[0]).values<float>(), ElementsAre(1.0F, -2.0F));
}

TEST_F(NpyTest, ReadsAllThreeVersionsAndAnyOrderOfKeys) {
  for (const int version : {1, 2, 3}) {
    const NpyFile file(write(
        "v.npy", npy(version, "{\"shape\":(1,2),'fortran_order':False,'descr':'<f4'}", floats({3, 4}))));
    EXPECT_EQ(file.tensors()[0].shape(), Shape({1, 2}));
    EXPECT_THAT(file.read(file.tensors()[0]).values<float>(), ElementsAre(3, 4));
  }
}

TEST_F(NpyTest, EveryTypeThatItWritesComesBack) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kU8, DType::kU32,
                            DType::kI32, DType::kU64, DType::kI64}) {
    Tensor tensor(dtype, Shape{2, 3});
    auto* bytes = static_cast<unsigned char*>(tensor.mutable_view().data());
    for (std::size_t i = 0; i < tensor.bytes(); ++i) bytes[i] = static_cast<unsigned char>(i * 41 + 3);
    write_npy(folder_ / "t.npy", tensor);
    const NpyFile file(folder_ / "t.npy");
    EXPECT_EQ(file.tensors()[0].dtype, dtype);
    EXPECT_EQ(file.tensors()[0].shape(), Shape({2, 3}));
    EXPECT_EQ(view_bytes(file.read(file.tensors()[0])), view_bytes(tensor)) << to_string(dtype);
  }
}

TEST_F(NpyTest, Bfloat16IsATwoByteVoid) {
  for (const char* descr : {"<V2", "|V2"}) {
    const NpyFile file(write("b.npy", npy(1, header_of(descr, false, "(1,)"), std::string("\xC0\x3F", 2))));
    EXPECT_EQ(file.tensors()[0].dtype, DType::kBF16);
    EXPECT_EQ(file.read(file.tensors()[0]).values<BF16>()[0].bits, 0x3FC0);
  }
  write_npy(folder_ / "out.npy", Tensor::of<BF16>({BF16{1}}, Shape{1}));
  EXPECT_THAT(read("out.npy"), HasSubstr("'descr': '<V2'"));
}

TEST_F(NpyTest, ScalarsAndEmptyArrays) {
  const NpyFile scalar(write("s.npy", npy(1, header_of("<f4", false, "()"), floats({7}))));
  EXPECT_EQ(scalar.tensors()[0].shape(), Shape());
  EXPECT_THAT(scalar.read(scalar.tensors()[0]).values<float>(), ElementsAre(7));
  const NpyFile empty(write("e.npy", npy(1, header_of("<f4", true, "(3, 0)"), "")));
  EXPECT_EQ(empty.read(empty.tensors()[0]).numel(), 0);
  write_npy(folder_ / "w.npy", Tensor(DType::kF32, Shape{}));
  EXPECT_THAT(read("w.npy"), HasSubstr("'shape': ()"));
}

TEST_F(NpyTest, FortranOrderIsTurnedRound) {
  // [[0 1 2] [3 4 5]] by columns.
  const NpyFile file(write("f.npy", npy(1, header_of("<f4", true, "(2, 3)"), floats({0, 3, 1, 4, 2, 5}))));
  EXPECT_TRUE(file.fortran_order());
  EXPECT_THAT(file.read(file.tensors()[0]).values<float>(), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(file.read_rows(file.tensors()[0], 1, 1).values<float>(), ElementsAre(3, 4, 5));
  Tensor middle(DType::kF32, Shape{2});
  file.read_elements(file.tensors()[0], 2, middle);
  EXPECT_THAT(middle.values<float>(), ElementsAre(2, 3));
}

TEST_F(NpyTest, FortranOrderOfMoreDimensionsInAnyPieces) {
  // x[i][j][k] = 100 i + 10 j + k, the first index fastest in the file.
  std::vector<float> stored;
  for (int k = 0; k < 4; ++k) {
    for (int j = 0; j < 3; ++j) {
      for (int i = 0; i < 2; ++i) stored.push_back(static_cast<float>(100 * i + 10 * j + k));
    }
  }
  std::vector<float> expected;
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 3; ++j) {
      for (int k = 0; k < 4; ++k) expected.push_back(static_cast<float>(100 * i + 10 * j + k));
    }
  }
  const NpyFile file(write("f3.npy", npy(2, header_of("<f4", true, "(2, 3, 4)"), floats(stored))));
  for (std::int64_t first = 0; first < 24; ++first) {
    for (std::int64_t count = 0; first + count <= 24; ++count) {
      Tensor part(DType::kF32, Shape{count});
      file.read_elements(file.tensors()[0], first, part);
      const std::vector<float> wanted(expected.begin() + first, expected.begin() + first + count);
      ASSERT_THAT(part.values<float>(), ::testing::ElementsAreArray(wanted)) << first << " " << count;
    }
  }
}

TEST_F(NpyTest, TypesThatNothingHereComputesWithAreListed) {
  for (const auto& [descr, data] :
       {std::pair<std::string, std::string>{"|b1", "a"}, {"|i1", "a"}, {"<i2", "ab"}, {"<u2", "ab"}}) {
    const NpyFile file(write("t.npy", npy(1, header_of(descr, false, "(1,)"), data)));
    EXPECT_EQ(file.tensors()[0].unreadable(), "its type " + descr + " is not supported");
  }
}

TEST_F(NpyTest, RefusesWhatItCannotRead) {
  const std::string one = floats({1});
  EXPECT_THAT(refusal(npy(1, header_of(">f4", false, "(1,)"), one)), HasSubstr("its type >f4 is big-endian"));
  EXPECT_THAT(refusal(npy(1, header_of("|O", false, "(1,)"), one)), HasSubstr("holds Python objects"));
  EXPECT_THAT(refusal(npy(1, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", one)),
              HasSubstr("describes a structure"));
  EXPECT_THAT(refusal(npy(1, header_of("<c8", false, "(1,)"), one)), HasSubstr("its type is \"<c8\""));
  EXPECT_THAT(refusal(npy(1, header_of("|V1", false, "(4,)"), one)), HasSubstr("its type is \"|V1\""));
  EXPECT_THAT(refusal(npy(1, header_of("", false, "(4,)"), one)), HasSubstr("its type is \"\""));
}

TEST_F(NpyTest, RefusesDamagedHeaders) {
  const std::string one = floats({1});
  EXPECT_THAT(refusal(""), HasSubstr("does not begin with NumPy's mark"));
  EXPECT_THAT(refusal("PK\x03\x04 an .npz"), HasSubstr("is no .npy file"));
  EXPECT_THAT(refusal(npy(4, "{}", one)), HasSubstr("has version 4.0 of the format"));
  EXPECT_THAT(refusal(std::string(kMagic) + std::string("\x02\x00\x01", 3)),
              HasSubstr("ends within its header"));
  EXPECT_THAT(refusal(std::string(kMagic) + std::string("\x02\x00\xFF\xFF\xFF\xFF", 6)),
              HasSubstr("header has 4294967295 bytes, at most"));
  EXPECT_THAT(refusal(std::string(kMagic) + std::string("\x01\x00\x50\x00{", 5)),
              HasSubstr("header has 80 bytes, but the file ends after 1"));
  EXPECT_THAT(refusal(npy(1, "", one)), HasSubstr("'{' is missing"));
  EXPECT_THAT(refusal(npy(1, "{'descr': '<f4'", one)), HasSubstr("'}' is missing"));
  EXPECT_THAT(refusal(npy(1, "{'descr': '<f4', 'shape': (1,)}", one)), HasSubstr("has no fortran_order"));
  EXPECT_THAT(refusal(npy(1, "{'descr': '<f4', 'descr': '<f4'}", one)), HasSubstr("has 'descr' twice"));
  EXPECT_THAT(refusal(npy(1, "{'dtype': '<f4'}", one)), HasSubstr("has the key 'dtype'"));
  EXPECT_THAT(refusal(npy(1, "{'descr': '<f4", one)), HasSubstr("has a quote that does not end"));
  EXPECT_THAT(refusal(npy(1, "{'fortran_order': 1}", one)), HasSubstr("neither True nor False"));
  EXPECT_THAT(refusal(npy(1, header_of("<f4", false, "(-1,)"), one)), HasSubstr("no number from 0 on"));
  EXPECT_THAT(refusal(npy(1, header_of("<f4", false, "(99999999999999999999,)"), one)),
              HasSubstr("no number from 0 on"));
  EXPECT_THAT(refusal(npy(1, header_of("<f4", false, "(1,)") + "import os", one)),
              HasSubstr("goes on after its end"));
}

TEST_F(NpyTest, SizesMustFit) {
  EXPECT_THAT(refusal(npy(1, header_of("<f4", false, "(2,)"), floats({1}))),
              HasSubstr("the file is cut off"));
  EXPECT_THAT(refusal(npy(1, header_of("<f4", false, "(1,)"), floats({1, 2}))),
              HasSubstr("holds several arrays"));
  EXPECT_THAT(refusal(npy(1, header_of("<f4", false, "(4294967296, 4294967296)"), "")),
              HasSubstr("has too many elements"));
  EXPECT_THAT(refusal(npy(1, header_of("<f4", false, "(4611686018427387904,)"), "")),
              HasSubstr("the file is cut off"));
}

TEST_F(NpyTest, CodesAreNotWritten) {
  EXPECT_THAT(error_of([&] { write_npy(folder_ / "c.npy", Tensor(DType::kE4M3, Shape{1})); }),
              HasSubstr("a tensor of e4m3 on cpu cannot be written"));
  EXPECT_EQ(files(), 0U);
}

}  // namespace
}  // namespace amaxscope
