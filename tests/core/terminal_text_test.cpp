#include "core/terminal_text.hpp"

#include <gtest/gtest.h>

namespace amaxscope {
namespace {

TEST(TerminalText, KeepsWhatIsShown) {
  const std::string text = "decoder.layers.1 \xc3\xa4 \xe2\x82\xac \xf0\x9f\x8e\x89 a|b~";
  EXPECT_EQ(terminal_text(text), text);
  EXPECT_EQ(terminal_line(text), text);
  EXPECT_EQ(terminal_text(""), "");
}

TEST(TerminalText, ReplacesEverySequenceThatATerminalActsOn) {
  EXPECT_EQ(terminal_text("a\x1b[31mb"), "a?[31mb");
  EXPECT_EQ(terminal_text("title\x1b]0;x\x07"), "title?]0;x?");
  EXPECT_EQ(terminal_text("over\rwritten\b\x7f"), "over?written??");
  EXPECT_EQ(terminal_text(std::string_view("a\0b", 3)), "a?b");
  EXPECT_EQ(terminal_text("\xc2\x9b"
                          "31m"),
            "?31m");                                // CSI of C1, as UTF-8
  EXPECT_EQ(terminal_text("\x9b\xff\xc3"), "???");  // and as a byte; cut off
  EXPECT_EQ(terminal_text("a\xe2\x80\xae"
                          "b"),
            "a?b");  // right-to-left override
  EXPECT_EQ(terminal_text("a\xe2\x81\xa6"
                          "b"),
            "a?b");  // isolate
}

TEST(TerminalText, ALineHasOneLine) {
  EXPECT_EQ(terminal_text("a\n\tb"), "a\n\tb");
  EXPECT_EQ(terminal_line("a\n\tb"), "a??b");
  EXPECT_EQ(terminal_line("a\xe2\x80\xa8"
                          "b"),
            "a?b");  // LINE SEPARATOR
}

}  // namespace
}  // namespace amaxscope
