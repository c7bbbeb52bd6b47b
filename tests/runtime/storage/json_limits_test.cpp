#include "runtime/storage/json_limits.hpp"

#include <gtest/gtest.h>

namespace amaxscope {
namespace {

TEST(JsonLimits, DepthIsCountedOutsideOfStrings) {
  EXPECT_EQ(json_excess("[[[1]],[[2]]]", {.depth = 3}), "");
  EXPECT_EQ(json_excess("[[[[1]]]]", {.depth = 3}), "is nested deeper than 3 levels");
  EXPECT_EQ(json_excess(R"({"a":{"[[[[":"\"[[[["}})", {.depth = 2}), "");
  EXPECT_EQ(json_excess(R"(["\\",[[0]]])", {.depth = 2}), "is nested deeper than 2 levels");
  EXPECT_EQ(json_excess(std::string(100'000'000, '[')), "is nested deeper than 32 levels");
}

TEST(JsonLimits, ValuesAreCountedAndTextsOfAnyKindAreTaken) {
  EXPECT_EQ(json_excess("[1,2,3]", {.values = 4}), "");
  EXPECT_EQ(json_excess("[1,2,3,4]", {.values = 4}), "has more than 4 values");
  EXPECT_EQ(json_excess(R"({"a":1,"b":2})", {.values = 4}), "has more than 4 values");
  EXPECT_EQ(json_excess(R"(["a,b,c,d,e:f"])", {.values = 2}), "");
  for (const char* text : {"", "\"", "\"\\", "]]]]", "}{", "\xff"}) EXPECT_EQ(json_excess(text), "") << text;
}

}  // namespace
}  // namespace amaxscope
