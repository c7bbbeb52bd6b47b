#include "launch/log_directory.hpp"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/error.hpp"

namespace amaxscope::launch {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class LogDirectory : public ::testing::Test {
 protected:
  LogDirectory()
      : folder_(fs::temp_directory_path() / ("amaxscope_log_directory_" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~LogDirectory() override { fs::remove_all(folder_); }

  std::string refusal(const fs::path& directory) {
    try {
      require_fresh_log_directory(directory.string());
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInput);
      return error.what();
    }
    return {};
  }

  fs::path folder_;
};

TEST_F(LogDirectory, NewAndEmptyOnesAreFineAndNotCreated) {
  EXPECT_EQ(refusal(folder_), "");
  EXPECT_EQ(refusal(folder_ / "a" / "b"), "");
  EXPECT_EQ(refusal("amaxscope_relative/that/does/not/exist"), "");
  EXPECT_FALSE(fs::exists(folder_ / "a"));
}

TEST_F(LogDirectory, AnotherRunsLogsAreNotMixedWithThisOnes) {
  std::ofstream(folder_ / "run.json") << "{}";
  EXPECT_THAT(refusal(folder_), HasSubstr("holds the logs of a run already"));
}

TEST_F(LogDirectory, AFileInTheWayIsNamed) {
  std::ofstream(folder_ / "file") << "x";
  EXPECT_THAT(refusal(folder_ / "file" / "logs"),
              HasSubstr((folder_ / "file").string() + " is not a directory"));
}

TEST_F(LogDirectory, DefaultsDoNotCollide) {
  const fs::path before = fs::current_path();
  fs::current_path(folder_);
  const std::string first = default_log_directory();
  fs::create_directories(first);
  const std::string second = default_log_directory();
  fs::current_path(before);
  EXPECT_THAT(first, HasSubstr("amaxscope_logs/"));
  EXPECT_NE(first, second);
}

}  // namespace
}  // namespace amaxscope::launch
