#include "core/log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.hpp"

namespace amaxscope {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

class LogTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(::testing::TempDir()) /
              ("amaxscope_log_" + std::string(info->name()) + "_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static std::string read(const std::filesystem::path& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

  std::filesystem::path folder_;
};

TEST_F(LogTest, LevelsByName) {
  EXPECT_EQ(parse_log_level("trace"), LogLevel::kTrace);
  EXPECT_EQ(parse_log_level("debug"), LogLevel::kDebug);
  EXPECT_EQ(parse_log_level("info"), LogLevel::kInfo);
  EXPECT_EQ(parse_log_level("warn"), LogLevel::kWarn);
  EXPECT_EQ(parse_log_level("error"), LogLevel::kError);
  EXPECT_THROW(parse_log_level("Info"), Error);
}

TEST_F(LogTest, ALineThatAKillCutOffStaysALineOfItsOwn) {
  const std::filesystem::path path = folder_ / "cut.log";
  std::ofstream(path) << "a whole line\na part of";
  for (int start = 0; start < 2; ++start) {
    Log log;
    log.add_file(path);
    log.write_to_files(LogLevel::kInfo, "next");
  }
  EXPECT_THAT(read(path), MatchesRegex("a whole line\na part of\n[^\n]* next\n[^\n]* next\n"));
}

TEST_F(LogTest, ConsoleShowsWarningsWithThePrefix) {
  ::testing::internal::CaptureStderr();
  Log::Options options;
  options.prefix = "[rank 3] ";
  Log log(options);
  log.info("not shown");
  log.warn("layer {} has {} NaN", "fc1", 2);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "amaxscope: [rank 3] warning: layer fc1 has 2 NaN\n");
}

TEST_F(LogTest, FileLineHasDateLevelAndMessage) {
  Log log;
  log.add_file(folder_ / "run.log");
  ::testing::internal::CaptureStderr();
  log.info("hello {}", 7);
  log.write(LogLevel::kDebug, "below the file's level");
  log.error("bad");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "amaxscope: error: bad\n");
  EXPECT_THAT(read(folder_ / "run.log"),
              MatchesRegex("[0-9]+-[0-9]+-[0-9]+ [0-9]+:[0-9]+:[0-9]+,[0-9]+ - INFO - hello 7\n"
                           "[0-9]+-[0-9]+-[0-9]+ [0-9]+:[0-9]+:[0-9]+,[0-9]+ - ERROR - bad\n"));
}

TEST_F(LogTest, AppendsToAnExistingFile) {
  std::ofstream(folder_ / "run.log") << "earlier\n";
  Log log;
  log.add_file(folder_ / "run.log");
  log.info("later");
  EXPECT_THAT(read(folder_ / "run.log"), HasSubstr("earlier\n"));
  EXPECT_THAT(read(folder_ / "run.log"), HasSubstr("later"));
}

TEST_F(LogTest, BracesInAMessageAreNotAFormat) {
  Log log;
  log.add_file(folder_ / "run.log");
  log.write(LogLevel::kInfo, "a {} and a %v");
  EXPECT_THAT(read(folder_ / "run.log"), HasSubstr("a {} and a %v"));
}

TEST_F(LogTest, AFileThatCannotBeOpenedIsAnError) {
  Log log;
  try {
    log.add_file("/proc/nowhere/run.log");
    FAIL() << "opened";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_THAT(error.what(), HasSubstr("/proc/nowhere/run.log"));
  }
}

TEST_F(LogTest, AFullDiskDoesNotThrow) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  Log log;
  log.add_file("/dev/full");
  EXPECT_NO_THROW(log.info("lost"));
}

TEST_F(LogTest, ALinkOrAPipeInTheLogDirectoryIsRefused) {
  std::ofstream(folder_ / "of_somebody") << "theirs";
  std::filesystem::create_symlink("of_somebody", folder_ / "link.log");
  ASSERT_EQ(::mkfifo((folder_ / "pipe.log").c_str(), 0600), 0);
  Log log;
  const auto refusal = [&](const char* name) -> std::string {
    try {
      log.add_file(folder_ / name);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kIo);
      return error.what();
    }
    return "opened";
  };
  EXPECT_THAT(refusal("link.log"), HasSubstr("link.log: cannot be opened: it is a symbolic link"));
  EXPECT_THAT(refusal("pipe.log"), HasSubstr("pipe.log: cannot be opened: it is not a regular file"));
  log.info("mine");
  EXPECT_EQ(read(folder_ / "of_somebody"), "theirs");
}

TEST_F(LogTest, NoNameReachesTheTerminalAsASequence) {
  ::testing::internal::CaptureStderr();
  Log log;
  log.add_file(folder_ / "run.log");
  log.warn("layer {}",
           "\x1b[2J\xc2\x9b"
           "31m");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "amaxscope: warning: layer ?[2J?31m\n");
  log.write_to_files(LogLevel::kWarn, "\x1b]0;title\x07");
  EXPECT_THAT(read(folder_ / "run.log"), HasSubstr("layer ?[2J?31m"));
  EXPECT_THAT(read(folder_ / "run.log"), HasSubstr("?]0;title?"));
}

TEST_F(LogTest, TwoLogsAreIndependent) {
  Log first;
  Log second;
  first.add_file(folder_ / "first.log");
  second.add_file(folder_ / "second.log");
  first.info("one");
  second.info("two");
  EXPECT_THAT(read(folder_ / "first.log"), Not(HasSubstr("two")));
  EXPECT_THAT(read(folder_ / "second.log"), Not(HasSubstr("one")));
}

TEST_F(LogTest, LinesOfSeveralThreadsDoNotInterleave) {
  Log log;
  log.add_file(folder_ / "run.log");
  const std::string text(200, 'x');
  std::vector<std::thread> writers;
  for (int i = 0; i < 4; ++i) {
    writers.emplace_back([&] {
      for (int line = 0; line < 100; ++line) log.info("{}", text);
    });
  }
  for (std::thread& writer : writers) writer.join();
  std::ifstream file(folder_ / "run.log");
  int lines = 0;
  for (std::string line; std::getline(file, line); ++lines) {
    ASSERT_EQ(line.size(), std::string("2026-01-31 05:11:57,884 - INFO - ").size() + text.size());
  }
  EXPECT_EQ(lines, 400);
}

TEST_F(LogTest, MovesWithItsFiles) {
  Log log;
  log.add_file(folder_ / "run.log");
  Log moved = std::move(log);
  moved.info("still here");
  EXPECT_THAT(read(folder_ / "run.log"), HasSubstr("still here"));
}

}  // namespace
}  // namespace amaxscope
