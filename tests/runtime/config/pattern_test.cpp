// Layer patterns mean what Python's re.search makes of them. Expectations are those of Python 3.11.
#include <gmock/gmock.h>

#include <chrono>

#include "core/error.hpp"
#include "runtime/config/layer_selector.hpp"
#include "runtime/config/python_pattern.hpp"

namespace amaxscope {
namespace {

std::string refused(const std::string& text) {
  try {
    const Pattern pattern(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    return error.what();
  }
  return "";
}

struct Case {
  std::string pattern;
  std::string subject;
  bool found;
};

TEST(Pattern, SearchesAsPythonDoes) {
  const std::vector<Case> cases = {
      {".*(fc1|fc2)", "decoder.1.mlp.fc1", true},
      {"decoder\\.1", "decoder.10.fc1", true},  // search, not a full match
      {"decoder\\.1\\..*", "decoder.10.fc1", false},
      {"decoder\\.1\\..*", "decoder.1.fc1", true},
      {"^fc1$", "mlp.fc1", false},
      {"", "anything", true},
      {"", "", true},
      {"(?i)FC1", "mlp.fc1", true},
      {"(?i)(?s)A.C", "a\nc", true},
      {"a(?i:B)c", "aBc", true},
      {"a(?i:B)c", "abC", false},
      {"fc1$", "fc1\n", true},     // $ also matches before a last newline
      {"fc1\\Z", "fc1\n", false},  // \Z does not
      {"fc1\\Z", "fc1", true},
      {"a.b", "a\nb", false},
      {"a.b", "a\rb", true},  // only \n is a line end
      {"(?s)a.b", "a\nb", true},
      {"(?m)^b", "a\nb", true},
      {"a{,2}b", "aab", true},
      {"^a{,2}b", "aaab", false},
      {"^a{,}b", "aaab", true},
      {"[[:alpha:]]", "a]", true},  // a set of [ : a l p h and then a ]
      {"[[:alpha:]]", "b]", false},
      {"[]x]", "]", true},
      {"[^]x]", "]", false},
      {"(?P<n>a)(?P=n)", "aa", true},
      {"(a)?b(?(1)c|d)", "bd", true},
      {"(?P<R>a)?b(?(R)c|d)", "bd", true},  // a group that is called R, not PCRE2's recursion
      {"(?x) f c 1  # [ a comment", "fc1", true},
      {"(?u)a", "a", true},
      {"(?:a)(?=b)(?!c)(?<=a)(?<!b)", "ab", true},
      {"(?#note)a", "a", true},
      {"\\x41\\u0042\\U00000043", "ABC", true},
      {"\\v", "\v", true},
      {"\\v", "\n", false},
      {"\\d", "\xD9\xA3", true},  // ARABIC-INDIC DIGIT THREE
      {"^.$", "\xC3\xA4", true},  // one character of two bytes
      {"\\.", "abc", false},
      {"\xC3\xA4", "x\xC3\xA4", true},
  };
  for (const Case& test : cases) {
    EXPECT_EQ(Pattern(test.pattern).found_in(test.subject), test.found)
        << test.pattern << " in " << testing::PrintToString(test.subject);
  }
}

TEST(Pattern, AnyBytesCanBeSearched) {
  EXPECT_TRUE(Pattern("fc1").found_in("\xFF.fc1"));  // not UTF-8
  EXPECT_FALSE(Pattern("^.$").found_in("\xFF"));
  EXPECT_TRUE(Pattern("b").found_in(std::string_view("a\0b", 3)));
  EXPECT_FALSE(Pattern("a").found_in(std::string_view()));
}

TEST(Pattern, RefusesWhatPythonRefuses) {
  EXPECT_EQ(refused("a("), "pattern \"a(\": missing closing parenthesis at offset 2");
  EXPECT_EQ(refused("ab\\"), "pattern \"ab\\\": bad escape (end of pattern) at offset 2");
  EXPECT_EQ(refused("a[b"), "pattern \"a[b\": unterminated character set at offset 1");
  EXPECT_EQ(refused("a\\hb"), "pattern \"a\\hb\": bad escape \\h at offset 1");
  EXPECT_EQ(refused("\\K"), "pattern \"\\K\": bad escape \\K at offset 0");
  EXPECT_EQ(refused("[\\Z]"), "pattern \"[\\Z]\": bad escape \\Z at offset 1");
  EXPECT_EQ(refused("\\x4"), "pattern \"\\x4\": incomplete escape \\x at offset 0");
  EXPECT_EQ(refused("(*UTF)a"), "pattern \"(*UTF)a\": nothing to repeat at offset 1");
  EXPECT_EQ(refused("a(?R)"), "pattern \"a(?R)\": unknown flag R at offset 3");
  EXPECT_EQ(refused("(?1)"), "pattern \"(?1)\": unknown extension (?1 at offset 0");
  EXPECT_EQ(refused("(?P>n)"), "pattern \"(?P>n)\": unknown extension (?P> at offset 0");
  EXPECT_EQ(refused("a(?i)b"),
            "pattern \"a(?i)b\": global flags not at the start of the expression at offset 1");
  EXPECT_EQ(refused("(?<n>a)"), "pattern \"(?<n>a)\": unknown extension (?<n at offset 0");
  EXPECT_EQ(refused("(?a)b"), "pattern \"(?a)b\": flag a is not supported at offset 2");
  EXPECT_THAT(refused("*a"), testing::HasSubstr("at offset 0"));
  EXPECT_THAT(refused("a**"), testing::StartsWith("pattern \"a**\": "));
  // Offsets are those of the pattern as it was written: \Z and {,2} grow when rewritten.
  EXPECT_THAT(refused("a{,2}\\Z("), testing::EndsWith("at offset 8"));
}

TEST(Pattern, CatastrophicBacktrackingIsAnErrorThatNamesThePattern) {
  const Pattern pattern("^(a+)+$");
  const auto start = std::chrono::steady_clock::now();
  try {
    (void)pattern.found_in(std::string(60, 'a') + "b");
    FAIL() << "no limit was met";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    EXPECT_THAT(error.what(), testing::StartsWith("pattern \"^(a+)+$\": matching it against \"aaaa"));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(Pattern, MovesKeepWorking) {
  Pattern a("x");
  Pattern b = std::move(a);
  EXPECT_TRUE(b.found_in("x"));
  EXPECT_EQ(b.text(), "x");
  b = Pattern("y");
  EXPECT_FALSE(b.found_in("x"));
}

TEST(PythonToPcre, EveryByteKnowsWhereItComesFrom) {
  const PcrePattern translated = python_to_pcre("a\\Z{,3}");
  EXPECT_EQ(translated.text, "a\\z{0,3}");
  EXPECT_THAT(translated.origin, testing::ElementsAre(0, 1, 1, 3, 3, 3, 5, 6));
}

}  // namespace
}  // namespace amaxscope
