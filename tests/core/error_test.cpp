#include "core/error.hpp"

#include <gtest/gtest.h>

#include <array>
#include <string_view>

namespace amaxscope {
namespace {

TEST(Error, CarriesCodeMessageAndSite) {
  try {
    const int found = 3;
    AMAXSCOPE_CHECK(found == 4, ErrorCode::kConfig, "found {}, wanted {}", found, 4);
    FAIL() << "the check passed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    EXPECT_STREQ(error.what(), "found 3, wanted 4");
    EXPECT_NE(std::string_view(error.site().file_name()).find("error_test.cpp"), std::string_view::npos);
  }
}

TEST(Error, CheckDoesNotEvaluateItsMessageWhenItHolds) {
  int evaluated = 0;
  const auto count = [&] { return ++evaluated; };
  AMAXSCOPE_CHECK(true, ErrorCode::kUsage, "{}", count());
  EXPECT_EQ(evaluated, 0);
  EXPECT_THROW(AMAXSCOPE_CHECK(false, ErrorCode::kUsage, "{}", count()), Error);
  EXPECT_EQ(evaluated, 1);
}

TEST(Error, CheckIsOneStatement) {
  bool otherwise = false;
  if (const bool never = false; never)
    AMAXSCOPE_CHECK(false, ErrorCode::kUsage, "not reached");
  else
    otherwise = true;
  EXPECT_TRUE(otherwise);
}

TEST(Error, BadInputIsWhatTheUserCanMend) {
  struct Expected {
    ErrorCode code;
    std::string_view name;
    bool bad_input;
  };
  constexpr std::array<Expected, 9> kCodes = {{{ErrorCode::kUsage, "usage", true},
                                               {ErrorCode::kConfig, "config", true},
                                               {ErrorCode::kInput, "input", true},
                                               {ErrorCode::kTensor, "tensor", false},
                                               {ErrorCode::kMismatch, "mismatch", false},
                                               {ErrorCode::kDeadline, "deadline", false},
                                               {ErrorCode::kStopped, "stopped", false},
                                               {ErrorCode::kIo, "io", false},
                                               {ErrorCode::kInternal, "internal", false}}};
  for (const Expected& expected : kCodes) {
    EXPECT_EQ(to_string(expected.code), expected.name);
    EXPECT_EQ(Error(expected.code, "text").is_bad_input(), expected.bad_input) << expected.name;
  }
}

}  // namespace
}  // namespace amaxscope
