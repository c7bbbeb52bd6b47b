// The debug YAML, whoever wrote it: an answer within seconds and half a GiB.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "features/builtin.hpp"
#include "runtime/config/config.hpp"
#include "runtime/config/layer_selector.hpp"
#include "tests/bounds/limited.hpp"

namespace amaxscope::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::size_t kMebibyte = std::size_t{1} << 20;

std::string repeated(std::string_view piece, std::size_t bytes = kMebibyte) {
  std::string text;
  while (text.size() + piece.size() <= bytes) text += piece;
  return text;
}

/// The first 2,000 characters of what load_config says.
Limited load(const std::string& text, const Limits& limits = {}) {
  static const FeatureRegistry registry = builtin_features();
  const Limited result = limited(
      [&] {
        static_cast<void>(load_config(text, "config.yaml", registry));
        return std::string("loaded");
      },
      limits);
  return {result.said.substr(0, 2000), result.cpu_seconds, result.peak_mebibytes};
}

TEST(ConfigBounds, AliasesThatMultiply) {
  std::string text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    text += fmt::format("a{0}: &a{0} [*a{1}, *a{1}, *a{1}, *a{1}, *a{1}, *a{1}, *a{1}, *a{1}, *a{1}]\n", i,
                        i - 1);
  }
  EXPECT_THAT(load(text).said, AllOf(StartsWith("refused: config.yaml:"),
                                     HasSubstr("aliases expand to more than 100000 nodes")));
}

TEST(ConfigBounds, AliasesThatMultiplyByMerging) {
  std::string text = "a: &a\n";
  for (int i = 0; i < 1000; ++i) text += fmt::format("  key{}: {}\n", i, std::string(900, 'v'));
  text += "b: {<<: [*a";
  for (int i = 0; i < 1000; ++i) text += ", *a";
  text += "]}\n";
  EXPECT_THAT(load(text).said, AllOf(StartsWith("refused: config.yaml:"), HasSubstr("aliases expand to")));
}

TEST(ConfigBounds, AMebibyteOfAnyOnePiece) {
  for (const char* piece :
       {"[",    "{",    "- ",   "? ",   ": ",     "a: ",     "&a ",   "*a ",   "!a ",  "!<a> ",
        "'",    "\"",   "|\n",  ">\n",  "#",      "%a ",     ",",     "\t",    " ",    "\n",
        "a\n",  "[,",   "{?",   "\\",   "---",    "---\n",   "...\n", "@",     "`",    "<<: ",
        "a: [", "{a: ", "- - ", "? - ", "\"a\" ", "a: &b\n", "x",     "- a\n", "[a]: "}) {
    const Limited result = load(repeated(piece));
    EXPECT_TRUE(result.said == "loaded" || result.said.starts_with("refused: config.yaml"))
        << "'" << piece << "': " << result.said;
  }
}

TEST(ConfigBounds, NestingByIndentation) {
  std::string text;
  for (int depth = 0; text.size() + 2 * static_cast<std::size_t>(depth) < kMebibyte - 100; ++depth)
    text += std::string(static_cast<std::size_t>(depth), ' ') + "a:\n";
  EXPECT_THAT(load(text).said,
              AllOf(StartsWith("refused: config.yaml:"), HasSubstr("nested more than 64 levels deep")));
}

TEST(ConfigBounds, DuplicateKeysNamesWithoutEndAndBytesThatAreNoText) {
  EXPECT_THAT(
      load(repeated("same: 1\n", 8000)).said,
      AllOf(StartsWith("refused: config.yaml:"), HasSubstr("duplicate key \"same\"; it stands at line 1")));
  EXPECT_THAT(load(std::string(10'000, 'n') + ":\n  enabled: True\n").said,
              StartsWith("refused: config.yaml:1"));
  EXPECT_THAT(load("a: \xc3\x28\n").said, HasSubstr("config.yaml:1:4: byte 0xc3 is not UTF-8"));
  EXPECT_THAT(load(std::string("a: \0", 4)).said, HasSubstr("U+0000 is not allowed"));
  EXPECT_THAT(load(std::string(kMebibyte + 1, ' ')).said, HasSubstr("at most 1048576 (1 MiB) are allowed"));
}

TEST(ConfigBounds, AConfigFileWithoutEnd) {
  EXPECT_THAT(limited([] { return read_config_file("/dev/zero"); }).said,
              StartsWith("refused: /dev/zero: the config file is over 1048576 bytes"));
}

std::string config_with(const std::string& pattern) {
  return "s:\n  enabled: True\n  layers:\n    layer_name_regex_pattern: '" + pattern +
         "'\n  transformer_engine:\n    LogTensorStats: {enabled: True, tensors: [weight], stats: [max]}\n";
}

/// What matching says of layers with these names.
Limited match(const std::string& pattern, const std::vector<std::string>& layers) {
  static const FeatureRegistry registry = builtin_features();
  return limited([&] {
    const Config config = load_config(config_with(pattern), "config.yaml", registry);
    for (const std::string& layer : layers)
      static_cast<void>(config.sections.at(0).layers->matches(layer, 1));
    return std::string("matched");
  });
}

TEST(ConfigBounds, PatternsThatBacktrack) {
  const std::vector<std::string> layers = {std::string(10'000, 'a') + "!", std::string(200, 'a') + "1!"};
  for (const char* pattern :
       {"(a+)+$", "(a|a)*$", "(a*)*b", "(.*)(.*)(.*)(.*)(.*)(.*)b", "(?:(?:a?){50}){50}b$",
        "^(([a-z])+.)+[A-Z]([a-z])+$", "(?=(a+))a*b\\1", "((a{1,99}){1,99}){1,9}b"}) {
    const Limited result = match(pattern, layers);
    EXPECT_TRUE(result.said == "matched" || result.said.starts_with("refused: "))
        << pattern << ": " << result.said;
  }
  EXPECT_THAT(match("(a+)+$", layers).said,
              AllOf(HasSubstr("pattern \"(a+)+$\": matching it against"), HasSubstr("was given up"),
                    HasSubstr("write it without nested repeats")));
}

TEST(ConfigBounds, PatternsThatAreLongOrDeepOrLarge) {
  for (const std::string& pattern :
       {std::string(100'000, '('), std::string(100'000, '[') + "a]", std::string(300'000, 'a'),
        repeated("(a", 100'000), repeated("a|", 300'000), repeated("\\w", 300'000),
        std::string("((((a{99}){99}){99}){99}){99}"), repeated("(?=", 100'000),
        repeated("a{9,99}", 100'000)}) {
    const Limited result = match(pattern, {std::string(10'000, 'a')});
    EXPECT_TRUE(result.said == "matched" || result.said.starts_with("refused: "))
        << result.said.substr(0, 300);
  }
}

TEST(ConfigBounds, APatternThatEndsInNumbersAgainAndAgain) {
  // cuts_number_in() looks at every place of a name.
  const Limited result = limited([] {
    return std::string(Pattern("1").cuts_number_in(std::string(10'000, '1') + "x") ? "cut" : "whole");
  });
  EXPECT_EQ(result.said, "whole");
}

}  // namespace
}  // namespace amaxscope::test
