#include "megatron/text_data.hpp"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <fstream>
#include <set>

#include "core/error.hpp"
#include "tests/support/temporary_folder.hpp"

namespace amaxscope::megatron {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A directory of its own for each test, gone at the end.
class TextFiles : public ::testing::Test {
 protected:
  fs::path write(const std::string& name, const std::string& text) const {
    std::ofstream(directory_ / name, std::ios::binary) << text;
    return directory_ / name;
  }
  static std::string error_of(const std::vector<fs::path>& files, std::int64_t sequence = 1) {
    try {
      (void)TextData::from_files(files, sequence);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInput);
      return error.what();
    }
    return "no error";
  }

  const TemporaryFolder temporary_;
  fs::path directory_ = temporary_.path();
};

TEST_F(TextFiles, AreReadAsBytesOneAfterTheOther) {
  const std::string zero_byte("b\0\n", 3);
  const TextData data = TextData::from_files({write("2", "a\xFF\r\n"), write("1", zero_byte)}, 6);
  ASSERT_EQ(data.size(), 7U);
  const Batch batch = data.batch(0, 0, 0, 0, 6, 1);  // there is one place to start
  EXPECT_THAT(batch.inputs, ElementsAre('a', 0xFF, '\r', '\n', 'b', 0));
  EXPECT_THAT(batch.targets, ElementsAre(0xFF, '\r', '\n', 'b', 0, '\n'));
}

TEST_F(TextFiles, LongFilesAreReadWhole) {
  const std::string text(200'000, 'x');
  EXPECT_EQ(TextData::from_files({write("long", text), write("short", "y")}).size(), 200'001U);
}

TEST_F(TextFiles, MissingFileIsAnErrorThatNamesIt) {
  const fs::path present = write("present", "text");
  EXPECT_THAT(error_of({present, directory_ / "absent.txt"}),
              AllOf(HasSubstr("absent.txt"), HasSubstr("no such file")));
  EXPECT_THAT(error_of({present / "below"}), HasSubstr("present/below"));
  EXPECT_THAT(error_of({}), HasSubstr("no text file"));
}

TEST_F(TextFiles, DirectoryEmptyFileAndPipeAreErrors) {
  EXPECT_THAT(error_of({directory_}), AllOf(HasSubstr(directory_.string()), HasSubstr("is a directory")));
  EXPECT_THAT(error_of({write("empty", "")}), AllOf(HasSubstr("empty"), HasSubstr("is empty")));
  const fs::path pipe = directory_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(error_of({pipe}), HasSubstr("is not a regular file"));  // and does not wait for a writer
  const fs::path dangling = directory_ / "dangling";
  fs::create_symlink("nowhere", dangling);
  EXPECT_THAT(error_of({dangling}), HasSubstr("no such file"));
}

TEST_F(TextFiles, UnreadableFileIsAnError) {
  const fs::path closed = write("closed", "text");
  fs::permissions(closed, fs::perms::none);
  // Who may read everything (root) is refused by a file of the kernel's: its first page is not mapped.
  const fs::path unreadable = geteuid() == 0 ? fs::path("/proc/self/mem") : closed;
  EXPECT_THAT(error_of({unreadable}), AllOf(HasSubstr(unreadable.string()), HasSubstr("cannot be read: ")));
}

TEST_F(TextFiles, TooShortTextIsAnError) {
  const fs::path file = write("text", "0123456789");
  EXPECT_THAT(error_of({file}, 10), AllOf(HasSubstr("10 bytes"), HasSubstr("need 11")));
  EXPECT_EQ(error_of({file}, 9), "no error");
  EXPECT_EQ(error_of({file, file}, 19), "no error");
  const TextData data("0123456789");
  EXPECT_NO_THROW((void)data.batch(1, 2, 3, 0, 9, 4));
  EXPECT_THROW((void)data.batch(1, 2, 3, 0, 10, 4), Error);
  EXPECT_THROW((void)data.batch(1, 2, 3, 0, 0, 4), Error);
  EXPECT_THROW((void)data.batch(1, 2, 3, 0, 4, 0), Error);
}

TEST_F(TextFiles, DefaultFilesAreTheRealOnesInOrder) {
  write("GPL-3", "gnu");
  write("BSD", "bsd");
  write("nothing", "");
  fs::create_symlink("GPL-3", directory_ / "GPL");
  fs::create_directory(directory_ / "sub");
  EXPECT_THAT(TextData::default_files(directory_), ElementsAre(directory_ / "BSD", directory_ / "GPL-3"));
}

TEST_F(TextFiles, NoDefaultFileIsAnError) {
  for (const fs::path& place : {directory_, directory_ / "absent"}) {
    try {
      (void)TextData::default_files(place);
      ADD_FAILURE() << place;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInput);
      EXPECT_THAT(error.what(), AllOf(HasSubstr(place.string()), HasSubstr("no text file")));
    }
  }
}

TEST(TextData, LicencesOfThisSystemAreEnoughToTrainOn) {
  if (!fs::exists("/usr/share/common-licenses")) GTEST_SKIP() << "no /usr/share/common-licenses here";
  const TextData data = TextData::from_files(TextData::default_files(), 1024);
  EXPECT_GT(data.size(), 100'000U);
}

std::string bytes_with_place() {
  std::string bytes;
  for (int i = 0; i < 1000; ++i)
    bytes += static_cast<char>((i * 37) % 251);  // a place is seen from two bytes
  return bytes;
}

TEST(Batch, StartsWhereTheFormulaSays) {
  // Places from an independent calculation of the hash chain: seed 42, step 7, micro-batch 1, dp rank 3.
  const std::string bytes = bytes_with_place();
  const Batch batch = TextData(bytes).batch(42, 7, 1, 3, 16, 4);
  constexpr std::array<std::size_t, 4> kStarts = {750, 310, 431, 510};
  ASSERT_EQ(batch.inputs.size(), 64U);
  ASSERT_EQ(batch.targets.size(), 64U);
  for (std::size_t s = 0; s < 16; ++s) {
    for (std::size_t b = 0; b < 4; ++b) {
      EXPECT_EQ(batch.inputs[s * 4 + b], static_cast<unsigned char>(bytes[kStarts[b] + s]));
      EXPECT_EQ(batch.targets[s * 4 + b], static_cast<unsigned char>(bytes[kStarts[b] + s + 1]));
    }
  }
}

TEST(Batch, IsAPureFunctionOfItsArguments) {
  const TextData data(bytes_with_place());
  const auto wanted = data.batch(1, 2, 3, 4, 16, 4).inputs;
  EXPECT_EQ(data.batch(1, 2, 3, 4, 16, 4).inputs, wanted);
  EXPECT_NE(data.batch(2, 2, 3, 4, 16, 4).inputs, wanted);
  EXPECT_NE(data.batch(1, 3, 3, 4, 16, 4).inputs, wanted);
  EXPECT_NE(data.batch(1, 2, 4, 4, 16, 4).inputs, wanted);
  EXPECT_NE(data.batch(1, 2, 3, 5, 16, 4).inputs, wanted);
}

TEST(Batch, EveryPlaceIsReached) {
  const TextData data("abcdefghij");
  std::set<std::int32_t> first_bytes;
  for (std::int64_t step = 0; step < 200; ++step)
    first_bytes.insert(data.batch(1, step, 0, 0, 7, 1).inputs[0]);
  EXPECT_THAT(first_bytes, ElementsAre('a', 'b', 'c'));
}

}  // namespace
}  // namespace amaxscope::megatron
