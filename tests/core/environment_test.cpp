#include "core/environment.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "core/error.hpp"

namespace amaxscope {
namespace {

class EnvironmentTest : public ::testing::Test {
 protected:
  void SetUp() override { clear(); }
  void TearDown() override { clear(); }
  static void clear() {
    for (const char* name : {"AMAXSCOPE", "AMAXSCOPE_THREADS", "AMAXSCOPE_LOG_LEVEL"}) ::unsetenv(name);
  }
  static void set(const char* name, const char* value) { ::setenv(name, value, 1); }
  static std::string usage_error() {
    try {
      Environment::from_process();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUsage);
      return error.what();
    }
    ADD_FAILURE() << "accepted";
    return {};
  }
};

TEST_F(EnvironmentTest, DefaultsWhenNothingIsSet) {
  const Environment environment = Environment::from_process();
  EXPECT_TRUE(environment.enabled);
  EXPECT_FALSE(environment.threads.has_value());
  EXPECT_EQ(environment.log_level, "info");
}

TEST_F(EnvironmentTest, WordsThatTurnItOff) {
  for (const char* word : {"off", "OFF", "0", "false", "False", "no"}) {
    set("AMAXSCOPE", word);
    EXPECT_FALSE(Environment::from_process().enabled) << word;
  }
  for (const char* word : {"on", "1", "", "offline"}) {
    set("AMAXSCOPE", word);
    EXPECT_TRUE(Environment::from_process().enabled) << word;
  }
}

TEST_F(EnvironmentTest, Threads) {
  set("AMAXSCOPE_THREADS", "3");
  EXPECT_EQ(Environment::from_process().threads, 3);
  for (const char* wrong : {"0", "-1", "two", "2x", "", " 2", "99999999999"}) {
    set("AMAXSCOPE_THREADS", wrong);
    EXPECT_NE(usage_error().find("AMAXSCOPE_THREADS=\"" + std::string(wrong) + "\""), std::string::npos)
        << wrong;
  }
}

TEST_F(EnvironmentTest, LogLevel) {
  set("AMAXSCOPE_LOG_LEVEL", "WARN");
  EXPECT_EQ(Environment::from_process().log_level, "warn");
  set("AMAXSCOPE_LOG_LEVEL", "loud");
  EXPECT_EQ(usage_error(), "AMAXSCOPE_LOG_LEVEL=\"loud\" is not one of trace, debug, info, warn, error");
}

}  // namespace
}  // namespace amaxscope
