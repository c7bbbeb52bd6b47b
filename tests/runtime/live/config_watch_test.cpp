// Notices that a config file has been edited.
#include "runtime/live/config_watch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace amaxscope {
namespace {

using ::testing::HasSubstr;

class ConfigWatchTest : public ::testing::Test {
 protected:
  ConfigWatchTest() {
    file_ = std::filesystem::temp_directory_path() / ("amaxscope_watch_" + std::to_string(::getpid()));
    write("one");
  }
  ~ConfigWatchTest() override { std::filesystem::remove(file_); }
  void write(const std::string& text) {
    std::ofstream(file_, std::ios::binary) << text;
    // Every version gets a time of its own, however coarse the clock of the file system is.
    time_ += std::chrono::seconds(1);
    std::filesystem::last_write_time(file_, time_);
  }
  std::filesystem::path file_;
  std::filesystem::file_time_type time_ = std::filesystem::file_time_type::clock::now();
};

TEST_F(ConfigWatchTest, AnUneditedFileIsNoNews) {
  ConfigWatch watch(file_, "one");
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(watch.look());
  write("one");
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(watch.look()) << "touched only";
}

TEST_F(ConfigWatchTest, AVersionIsNewsOnceWhenItHasSettled) {
  ConfigWatch watch(file_, "one");
  EXPECT_FALSE(watch.look());
  EXPECT_FALSE(watch.look());
  write("tw");
  EXPECT_FALSE(watch.look()) << "an editor may be at work";
  write("two");
  EXPECT_FALSE(watch.look());
  const auto news = watch.look();
  ASSERT_TRUE(news);
  EXPECT_TRUE(news->readable);
  EXPECT_EQ(news->text, "two");
  EXPECT_FALSE(watch.look());
}

TEST_F(ConfigWatchTest, WhatWasEditedBeforeTheFirstLookIsSeen) {
  ConfigWatch watch(file_, "zero");
  EXPECT_FALSE(watch.look());
  const auto news = watch.look();
  ASSERT_TRUE(news);
  EXPECT_EQ(news->text, "one");
}

TEST_F(ConfigWatchTest, AMissingFileIsNewsOnce) {
  ConfigWatch watch(file_, "one");
  EXPECT_FALSE(watch.look());
  EXPECT_FALSE(watch.look());
  std::filesystem::remove(file_);
  EXPECT_FALSE(watch.look());
  const auto news = watch.look();
  ASSERT_TRUE(news);
  EXPECT_FALSE(news->readable);
  EXPECT_THAT(news->text, HasSubstr(file_.string()));
  EXPECT_FALSE(watch.look());
  write("one");
  EXPECT_FALSE(watch.look());
  EXPECT_FALSE(watch.look()) << "as it was before";
}

}  // namespace
}  // namespace amaxscope
