// Tensor files, checkpoint indexes, states and flight records of strangers: an answer within seconds and half
// a GiB, which says what, where and what is allowed.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "collectives/flight_reader.hpp"
#include "runtime/config/config.hpp"
#include "runtime/storage/safetensors.hpp"
#include "runtime/storage/tensor_file.hpp"
#include "tests/bounds/limited.hpp"
#include "tests/support/temporary_folder.hpp"

namespace amaxscope::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class FileBounds : public ::testing::Test {
 protected:
  [[nodiscard]] fs::path path(const std::string& name) const { return folder_.path() / name; }
  fs::path write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }
  /// Opens it and reads what it says it has.
  static Limited opened(const fs::path& file, const Limits& limits = {}) {
    return limited(
        [&] {
          const auto tensors = open_tensor_file(file);
          for (const StoredTensor& tensor : tensors->tensors()) {
            if (tensor.bytes <= 1U << 20U && tensor.unreadable().empty())
              static_cast<void>(tensors->read(tensor));
          }
          return fmt::format("{} tensors", tensors->tensors().size());
        },
        limits);
  }
  static std::string with_length(std::uint64_t length, const std::string& rest) {
    std::string bytes;
    for (unsigned byte = 0; byte < 8; ++byte) bytes += static_cast<char>(length >> (8 * byte) & 0xFFU);
    return bytes + rest;
  }
  static std::string safetensors(const std::string& header) { return with_length(header.size(), header); }

  const TemporaryFolder folder_;
};

TEST_F(FileBounds, HeadersThatPromise) {
  EXPECT_THAT(
      opened(write("a.safetensors", with_length(std::uint64_t{1} << 60U, "{}"))).said,
      AllOf(StartsWith("refused: "), HasSubstr("a.safetensors: says that its header has 1152921504606846976 "
                                               "bytes, at most 100000000 are allowed")));
  EXPECT_THAT(
      opened(write("b.safetensors", safetensors(R"({"w":{"dtype":"F32","shape":[1152921504606846976],)"
                                                R"("data_offsets":[0,4611686018427387904]}})")))
          .said,
      AllOf(HasSubstr("b.safetensors: tensor \"w\""), HasSubstr("of 0 bytes of data")));
  EXPECT_THAT(opened(write("c.safetensors", safetensors(R"({"w":{"dtype":"F32","shape":[1152921504606846976,)"
                                                        R"(1152921504606846976],"data_offsets":[0,0]}})")))
                  .said,
              HasSubstr("has too many elements"));
  const auto npy = [](std::uint32_t length, const std::string& header) {
    std::string bytes("\x93NUMPY\x02\x00", 8);
    for (unsigned byte = 0; byte < 4; ++byte) bytes += static_cast<char>(length >> (8 * byte) & 0xFFU);
    return bytes + header;
  };
  EXPECT_THAT(opened(write("a.npy", npy(0xFFFFFFFF, "{"))).said,
              HasSubstr("a.npy: says that its header has 4294967295 bytes, at most 1048576 are allowed"));
  const std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1152921504606846976,)}";
  EXPECT_THAT(
      opened(write("b.npy", npy(static_cast<std::uint32_t>(header.size()), header))).said,
      HasSubstr("b.npy: an array of 1152921504606846976 elements of 4 bytes needs more than the 0 bytes"));
}

TEST_F(FileBounds, NestingInJson) {
  EXPECT_THAT(opened(write("a.safetensors", safetensors(std::string(50'000'000, '[')))).said,
              HasSubstr("a.safetensors: its header holds an array where an object is needed"));
  const std::string deep = R"({"weight_map":)" + std::string(10'000'000, '[');
  EXPECT_THAT(opened(write("a.safetensors.index.json", deep)).said,
              HasSubstr("a.safetensors.index.json: is nested deeper than 4 levels"));
  EXPECT_THAT(opened(write("b.safetensors.index.json", std::string(20'000'000, '['))).said,
              HasSubstr("is nested deeper than 4 levels"));
}

TEST_F(FileBounds, AsMuchAsFitsIntoAHeader) {
  // The format allows 100 MB. 1.5 GiB are more than its two million tensors take here.
  std::string header = "{";
  for (int i = 0; header.size() < 95'000'000; ++i)
    header += fmt::format(R"({}"{}":{{"dtype":"U8","shape":[],"data_offsets":[0,0]}})", i == 0 ? "" : ",", i);
  EXPECT_THAT(
      opened(write("many.safetensors", safetensors(header + "}")), {.seconds = 20, .mebibytes = 1536}).said,
      AllOf(StartsWith("refused: "), HasSubstr("has 0 bytes of data, which is not what that needs")));
  std::string index = R"({"weight_map":{)";
  for (int i = 0; index.size() < 60'000'000; ++i) index += fmt::format(R"({}"{}":1)", i == 0 ? "" : ",", i);
  EXPECT_THAT(
      opened(write("many.safetensors.index.json", index + "}}"), {.seconds = 20, .mebibytes = 1536}).said,
      HasSubstr("many.safetensors.index.json: has more than"));
}

TEST_F(FileBounds, WhatIsNoFile) {
  ASSERT_EQ(mkfifo(path("pipe.safetensors").c_str(), 0600), 0);
  fs::create_symlink("/dev/zero", path("zero.npy"));
  fs::create_symlink("loop.safetensors", path("loop.safetensors"));
  fs::create_directory(path("folder.npy"));
  EXPECT_THAT(opened(path("pipe.safetensors")).said, HasSubstr("pipe.safetensors: is not a regular file"));
  EXPECT_THAT(opened(path("zero.npy")).said, HasSubstr("zero.npy: is not a regular file"));
  EXPECT_THAT(opened(path("loop.safetensors")).said,
              AllOf(StartsWith("refused: "), HasSubstr("loop.safetensors: cannot be opened")));
  EXPECT_THAT(opened(path("folder.npy")).said, HasSubstr("folder.npy: is a directory, not a file"));
  EXPECT_THAT(opened(path(std::string(10'000, 'n') + ".npy")).said, StartsWith("refused: "));
}

TEST_F(FileBounds, AHoleOfATebibyte) {
  for (const char* name : {"a.safetensors", "a.npy", "a.safetensors.index.json"}) {
    write(name, "");
    fs::resize_file(path(name), std::uintmax_t{1} << 40U);
    EXPECT_THAT(opened(path(name)).said, AllOf(StartsWith("refused: "), HasSubstr(name)));
  }
}

TEST_F(FileBounds, PathsInAnIndexStayInItsFolder) {
  write("part.safetensors", safetensors("{}"));
  for (const char* name :
       {"../part.safetensors", "/etc/passwd", "a/../part.safetensors", "..", ""}) {
    const Limited result =
        opened(write("i.safetensors.index.json", fmt::format(R"({{"weight_map":{{"w":"{}"}}}})", name)));
    EXPECT_THAT(result.said,
                AllOf(StartsWith("refused: "), HasSubstr("a .safetensors file in the folder of the index "
                                                         "is needed")))
        << name;
  }
}

TEST_F(FileBounds, NamesOfTenThousandCharactersAndAnyBytes) {
  const std::string name(10'000, 'n');
  EXPECT_EQ(opened(write("a.safetensors",
                         safetensors(fmt::format(
                             R"({{"{}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}}})", name))))
                .said,
            "1 tensors");
  EXPECT_THAT(opened(write("b.safetensors", safetensors("{\"\xff\":1}"))).said,
              HasSubstr("its header is not JSON at byte"));
  EXPECT_THAT(
      opened(write("c.safetensors", safetensors(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
                                                R"("a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})")))
          .said,
      HasSubstr("has two tensors named \"a\""));
}

TEST_F(FileBounds, FlightRecords) {
  const auto read = [](const fs::path& file) {
    return limited([&] {
      static_cast<void>(read_flight_record(file));
      return std::string("read");
    });
  };
  ASSERT_EQ(mkfifo(path("pipe.flight").c_str(), 0600), 0);
  EXPECT_THAT(read(path("pipe.flight")).said,
              AllOf(StartsWith("refused: "), HasSubstr("pipe.flight: is not a file")));
  fs::create_symlink("/dev/zero", path("zero.flight"));
  EXPECT_THAT(read(path("zero.flight")).said, HasSubstr("zero.flight: is not a file"));
  write("hole.flight", "AMAXSFLT");
  fs::resize_file(path("hole.flight"), std::uintmax_t{1} << 40U);
  EXPECT_THAT(read(path("hole.flight")).said, HasSubstr("1099511627776 bytes are no flight record"));
  write("zeros.flight", std::string(100'000, '\0'));
  EXPECT_THAT(read(path("zeros.flight")).said, StartsWith("refused: "));
}

}  // namespace
}  // namespace amaxscope::test
