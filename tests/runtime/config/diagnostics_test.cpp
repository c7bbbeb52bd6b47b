#include "runtime/config/diagnostics.hpp"

#include <gmock/gmock.h>

#include "core/error.hpp"

namespace amaxscope {
namespace {

using testing::ElementsAre;

std::string thrown(const Diagnostics& diagnostics) {
  try {
    diagnostics.throw_if_errors();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    return error.what();
  }
  return "";
}

TEST(Diagnostics, ThrowsEveryErrorInTheOrderOfTheFile) {
  Diagnostics diagnostics("c.yaml");
  diagnostics.error({9, 1}, "third");
  diagnostics.warn({1, 1}, "only a warning");
  diagnostics.error({2, 10}, "second");
  diagnostics.error({2, 9}, "first");
  EXPECT_EQ(thrown(diagnostics), "c.yaml:2:9: first\nc.yaml:2:10: second\nc.yaml:9:1: third");
}

TEST(Diagnostics, WarningsAloneThrowNothing) {
  Diagnostics diagnostics("c.yaml");
  diagnostics.warn({3, 4}, "odd");
  EXPECT_FALSE(diagnostics.has_errors());
  EXPECT_EQ(thrown(diagnostics), "");
  EXPECT_EQ(diagnostics.format(diagnostics.entries().at(0)), "c.yaml:3:4: odd");
}

TEST(Diagnostics, WithoutAPlaceOnlyTheFileIsNamed) {
  Diagnostics diagnostics("c.yaml");
  diagnostics.error({}, "too long");
  EXPECT_EQ(thrown(diagnostics), "c.yaml: too long");
}

TEST(Diagnostics, TheSameEntryIsKeptOnce) {
  Diagnostics diagnostics("c.yaml");
  for (int i = 0; i < 3; ++i) diagnostics.error({1, 1}, "twice");
  diagnostics.warn({1, 1}, "twice");  // another severity is another entry
  EXPECT_EQ(diagnostics.entries().size(), 2U);
}

TEST(Diagnostics, AFaultSilencesWhatFollowsAtItsPlace) {
  Diagnostics diagnostics("c.yaml");
  diagnostics.fault({4, 2}, "cause");
  diagnostics.error({4, 2}, "consequence");
  diagnostics.error({4, 3}, "elsewhere");
  EXPECT_EQ(thrown(diagnostics), "c.yaml:4:2: cause\nc.yaml:4:3: elsewhere");
}

TEST(Suggestion, NamesTheNearestWord) {
  const std::vector<std::string> keys = {"enabled", "freq", "start_step", "end_step", "stats"};
  EXPECT_EQ(suggestion("freqq", keys), "; did you mean \"freq\"?");
  EXPECT_EQ(suggestion("stat", keys), "; did you mean \"stats\"?");
  EXPECT_EQ(suggestion("sttas", keys), "; did you mean \"stats\"?");     // two swapped letters
  EXPECT_EQ(suggestion("frequency", keys), "; did you mean \"freq\"?");  // far in edits, same beginning
  EXPECT_EQ(suggestion("End_Step", keys), "; did you mean \"end_step\"?");
  EXPECT_EQ(suggestion("DisableFp8Gemm", {"DisableFP8Layer", "DisableFP8GEMM"}),
            "; did you mean \"DisableFP8GEMM\"?");
}

TEST(Suggestion, ListsAllWordsWhenNoneIsNear) {
  EXPECT_EQ(suggestion("interval", {"freq", "stats"}), "; allowed: freq, stats");
  EXPECT_EQ(suggestion("", {"freq"}), "; allowed: freq");
  EXPECT_EQ(suggestion("anything", {}), "");
}

TEST(Nearest, OrdersByCloseness) {
  EXPECT_THAT(nearest("layers.1.fc1", {"layers.9.proj", "layers.2.fc1", "layers.1.fc2", "output"}, 2),
              ElementsAre("layers.2.fc1", "layers.1.fc2"));
  EXPECT_THAT(nearest("a", {"b"}, 5), ElementsAre("b"));
}

TEST(InQuotes, EscapesAndCuts) {
  EXPECT_EQ(in_quotes("a\tb\n"), "\"a\\tb\\n\"");
  EXPECT_EQ(in_quotes(std::string_view("\0\x7f", 2)), "\"\\x00\\x7f\"");
  EXPECT_EQ(in_quotes(std::string(81, 'x')), "\"" + std::string(80, 'x') + "...\"");
  // 79 bytes, then a two-byte character: it is not cut in half.
  EXPECT_EQ(in_quotes(std::string(79, 'x') + "\xC3\xA4" + "y"),
            "\"" + std::string(79, 'x') + "\xC3\xA4...\"");
}

}  // namespace
}  // namespace amaxscope
