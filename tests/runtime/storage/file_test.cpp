// Files that appear whole or not at all, and what killed processes leave behind.
#include "runtime/storage/file.hpp"

#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <csignal>

#include "runtime/storage/temporary_file.hpp"
#include "tests/runtime/storage/storage_fixture.hpp"

namespace amaxscope {
namespace {

using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;

class OutputFileTest : public testing::StorageTest {
 protected:
  void write_whole(const std::string& name, const std::string& text) const {
    OutputFile file(folder_ / name);
    file.write(text);
    file.commit();
  }
  /// What a process leaves that is killed while it writes a file of that name.
  void leave_behind(const std::string& name) const {
    const pid_t child = ::fork();
    if (child == 0) {
      OutputFile file(folder_ / name);
      ::raise(SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
  }
};

TEST_F(OutputFileTest, AppearsWithItsNameWhenItIsWhole) {
  write("x", "old");
  OutputFile file(folder_ / "x");
  file.write(std::string("new"));
  EXPECT_EQ(read("x"), "old");
  EXPECT_EQ(files(), 2U);
  file.commit(Durability::kPowerCut);
  EXPECT_EQ(read("x"), "new");
  EXPECT_EQ(files(), 1U);
}

TEST_F(OutputFileTest, WithoutACommitNothingStays) {
  { OutputFile(folder_ / "x").write(std::string("part")); }
  EXPECT_EQ(files(), 0U);
}

TEST_F(OutputFileTest, WhatAKilledProcessLeftGoesWithTheNextFileOfThatName) {
  for (int kills = 0; kills < 3; ++kills) leave_behind("x");
  EXPECT_EQ(files(), 1U) << "one for each name, however often";
  leave_behind("y");
  EXPECT_EQ(files(), 2U);
  write_whole("x", "whole");
  EXPECT_EQ(read("x"), "whole");
  EXPECT_EQ(files(), 2U) << "that of y is not touched";
  write_whole("y", "too");
  EXPECT_EQ(files(), 2U);
}

TEST_F(OutputFileTest, TwoThatWriteOneNameDoNotDisturbEachOther) {
  OutputFile first(folder_ / "x");
  OutputFile second(folder_ / "x");
  first.write(std::string("first"));
  second.write(std::string("second"));
  first.commit();
  EXPECT_EQ(read("x"), "first");
  second.commit();
  EXPECT_EQ(read("x"), "second");
  EXPECT_EQ(files(), 1U);
}

TEST_F(OutputFileTest, WhatIsNoLeftoverIsLeftAlone) {
  const std::filesystem::path name = [&] {
    const TemporaryFile temporary = make_temporary_file(folder_ / "x");
    ::close(temporary.descriptor);
    ::unlink(temporary.path.c_str());
    return temporary.path;
  }();
  write("target", "somebody else's");
  std::filesystem::create_symlink("target", name);
  write_whole("x", "whole");
  EXPECT_EQ(read("target"), "somebody else's");
  EXPECT_TRUE(std::filesystem::is_symlink(name));
  std::filesystem::remove(name);
  ASSERT_EQ(::mkfifo(name.c_str(), 0600), 0);  // opening it must not wait for a reader
  write_whole("x", "again");
  EXPECT_EQ(read("x"), "again");
  EXPECT_EQ(std::filesystem::status(name).type(), std::filesystem::file_type::fifo);
}

TEST_F(OutputFileTest, AFolderThatIsNotThereIsAnError) {
  EXPECT_THAT(error_of([&] { OutputFile(folder_ / "absent" / "x"); }),
              AllOf(HasSubstr("io: "), HasSubstr("absent/x: cannot be written: No such file or directory")));
}

}  // namespace
}  // namespace amaxscope
