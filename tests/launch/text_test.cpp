#include "launch/text.hpp"

#include <gtest/gtest.h>

namespace amaxscope::launch {
namespace {

TEST(Text, WrapsAtTheWidthAndIndents) {
  EXPECT_EQ(wrapped("one two three four", 2, 10), "  one two\n  three\n  four\n");
  EXPECT_EQ(wrapped("  spaces \n collapse ", 0, 80), "spaces collapse\n");
  EXPECT_EQ(wrapped("", 4, 80), "");
}

TEST(Text, AWordLongerThanTheLineIsKeptWhole) {
  EXPECT_EQ(wrapped("a bbbbbbbbbb c", 0, 5), "a\nbbbbbbbbbb\nc\n");
}

TEST(Text, TableAlignsColumnsWithoutTrailingSpaces) {
  EXPECT_EQ(table({{"layer", "plan"}, {"a", "Quantize"}, {"longer name", ""}}),
            "layer        plan\na            Quantize\nlonger name\n");
}

}  // namespace
}  // namespace amaxscope::launch
