// cases.md case 14: a pattern is searched for, and what that takes by accident is said.
#include "runtime/config/number_hint.hpp"

#include <gmock/gmock.h>

namespace amaxscope {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// decoder.0.fc1 .. decoder.19.fc1 that the pattern selects.
std::vector<std::string> selected(const std::string& text, const std::string& after = ".fc1") {
  const Pattern pattern(text);
  std::vector<std::string> names;
  for (int i = 0; i < 20; ++i) {
    const std::string name = "decoder." + std::to_string(i) + after;
    if (pattern.found_in(name)) names.push_back(name);
  }
  return names;
}

std::string hint(const std::string& text, const std::string& after = ".fc1") {
  return number_hint(Pattern(text), selected(text, after)).value_or("");
}

TEST(NumberHint, NamesWhatIsTakenByAPartOfItsNumberAndThePatternToUse) {
  ASSERT_EQ(selected(R"(decoder\.1)").size(), 11U);
  EXPECT_EQ(
      hint(R"(decoder\.1)"),
      R"(pattern "decoder\.1" also takes decoder.10.fc1, decoder.11.fc1 and 8 more, where its match ends )"
      R"(inside a number; to take whole numbers only, write 'decoder\.1\..*')");
  EXPECT_EQ(selected(R"(decoder\.1\..*)"), std::vector<std::string>{"decoder.1.fc1"}) << "what is proposed";
}

TEST(NumberHint, AlternativesAreKeptTogether) {
  EXPECT_THAT(hint(R"(decoder\.1|decoder\.2)"), HasSubstr(R"('(?:decoder\.1|decoder\.2)\..*')"));
  EXPECT_EQ(selected(R"((?:decoder\.1|decoder\.2)\..*)").size(), 2U);
}

TEST(NumberHint, NamesThatEndWithTheNumber) {
  EXPECT_THAT(hint(R"(decoder\.1)", ""), HasSubstr(R"('decoder\.1(?!\d)')"));
  EXPECT_EQ(selected(R"(decoder\.1(?!\d))", ""), std::vector<std::string>{"decoder.1"});
}

TEST(NumberHint, EvenWhenNoWholeNumberIsAmongThem) {
  EXPECT_THAT(number_hint(Pattern(R"(decoder\.1)"), {"decoder.10.fc1", "decoder.11.fc1"}).value_or(""),
              AllOf(HasSubstr("decoder.10.fc1 and decoder.11.fc1,"), Not(HasSubstr("more"))));
}

TEST(NumberHint, PatternsThatMatchWholeNumbersAreFine) {
  for (const char* text :
       {R"(decoder\.1\..*)", R"(decoder\.1\.)", R"(decoder\.\d+)", R"(decoder\.(1|2)\.)", R"(decoder\.1\d)",
        R"(decoder\.1[0-9]*)", R"(decoder\.)", "decoder", ".*", "fc1", "", R"(decoder\.1(?!\d))",
        R"(decoder\.1\b)", R"(^decoder\.(5|7)\.fc1$)", R"(1.*fc1)"}) {
    EXPECT_EQ(hint(text), "") << text;
  }
}

TEST(NumberHint, AnotherMatchOfTheNameCounts) {
  EXPECT_EQ(number_hint(Pattern("1"), {"decoder.10.fc1"}), std::nullopt) << "fc1 is a whole number, too";
  EXPECT_EQ(number_hint(Pattern("fc"), {"mlp.fc1"}), std::nullopt) << "the match has no number";
  EXPECT_NE(number_hint(Pattern("1"), {"decoder.10.fc2"}), std::nullopt);
  EXPECT_EQ(number_hint(Pattern("1"), {"\xC3\xA4.10.fc1"}), std::nullopt) << "a name of wide characters";
}

TEST(NumberHint, APatternThatBearsNoAdditionGetsAdviceOnly) {
  EXPECT_THAT(hint(R"((?i)decoder\.1|x)"), HasSubstr("let the pattern say what follows the number"));
}

}  // namespace
}  // namespace amaxscope
