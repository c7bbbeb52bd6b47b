// Files of anybody: what cannot be read is counted and said, and nothing escapes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "report/verdict_text.hpp"
#include "tests/report/run_folder.hpp"

namespace amaxscope::report {
namespace {

using test::RunFolder;
using ::testing::Contains;
using ::testing::HasSubstr;

TEST(HostileRecords, NoDirectory) { EXPECT_THROW(static_cast<void>(judge("/nonexistent/logs")), Error); }

TEST(HostileRecords, AnEmptyDirectoryIsNoData) {
  const RunFolder folder;
  const Verdict verdict = judge(folder.path());
  EXPECT_EQ(verdict.outcome, Outcome::kNoData);
  EXPECT_THAT(verdict.reading.problems, Contains(HasSubstr("run.json")));
  EXPECT_THAT(verdict.reading.problems, Contains(HasSubstr("rank_R.jsonl")));
  EXPECT_THAT(as_text(verdict), HasSubstr("no data"));
}

TEST(HostileRecords, AStepThatWasNeverCompletedIsNoData) {
  const RunFolder folder;
  folder.describe();
  folder.scalars(0, R"("loss":2,"checked/I1":4)");
  EXPECT_EQ(judge(folder.path()).outcome, Outcome::kNoData);
}

TEST(HostileRecords, WhatIsNotUnderstoodIsCounted) {
  const RunFolder folder;
  folder.describe();
  folder.healthy_step(0);
  for (const char* line :
       {"{", "[]", "7", "\"text\"", "", "null", R"({"iteration":"1","scalars":{}})", R"({"iteration":1})",
        R"({"iteration":1,"scalars":[]})", R"({"iteration":1,"finding":3})",
        R"({"iteration":1,"finding":{"check":7}})", R"({"iteration":1,"layer":"a","tensor":"b","stats":4})",
        R"({"iteration":1e400,"scalars":{}})", R"({"iteration":99999999999999999999,"scalars":{}})",
        "\xff\xfe\x00"}) {
    folder.line(line);
  }
  // Odd but harmless: unknown texts for numbers, ranks that are none.
  folder.line(R"({"iteration":1,"scalars":{"loss":"what","x":{"y":[]}}})");
  folder.line(R"({"iteration":1,"finding":{"check":"I1","ranks":["a",{}],"details":{"sets":4}}})");
  const Verdict verdict = judge(folder.path());
  EXPECT_EQ(verdict.reading.unreadable, 15U);
  EXPECT_EQ(verdict.reading.first_unreadable, "metrics/rank_0.jsonl:4");
  EXPECT_EQ(verdict.outcome, Outcome::kFound);  // the I1 of the last line
  EXPECT_THAT(as_text(verdict), HasSubstr("15 of 20 lines could not be read"));
  EXPECT_THAT(as_json(verdict), HasSubstr("\"unreadable_lines\": 15"));
}

TEST(HostileRecords, ALineTooLongAndALineCutOff) {
  const RunFolder folder;
  folder.describe();
  folder.healthy_step(0);
  folder.write("metrics/rank_0.jsonl", std::string((4U << 20) + 100, '[') + "\n");
  folder.healthy_step(1);
  folder.write("metrics/rank_0.jsonl", R"({"iteration":2,"scalars":{"loss":2)");
  const Verdict verdict = judge(folder.path());
  EXPECT_EQ(verdict.reading.unreadable, 2U);
  EXPECT_EQ(verdict.reading.completed_steps, 2U);
  EXPECT_EQ(verdict.outcome, Outcome::kHealthy);
}

TEST(HostileRecords, NamesWithoutEndAreLeftOutAndSentencesCut) {
  const RunFolder folder;
  folder.describe();
  folder.healthy_step(0);
  const std::string endless(1U << 20, 'n');
  folder.record(1, endless, "weight", R"("sqnr":31)");
  folder.finding(1, "I7", endless, "weight", "0", "codes changed");
  folder.finding(1, "I7", "a", "weight", "0", endless);
  const Verdict verdict = judge(folder.path());
  EXPECT_EQ(verdict.reading.unreadable, 2U);
  EXPECT_EQ(verdict.cause->places[0].layer, "a");
  EXPECT_LT(as_json(verdict).size(), 20000U);
}

TEST(HostileRecords, DeepNestingIsRefusedLikeAnythingElse) {
  const RunFolder folder;
  folder.describe();
  folder.healthy_step(0);
  folder.line(R"({"iteration":1,"scalars":)" + std::string(1U << 20, '[') + std::string(1U << 20, ']') + "}");
  EXPECT_EQ(judge(folder.path()).reading.unreadable, 1U);
}

TEST(HostileRecords, EveryPrefixOfAFileIsJudged) {
  const RunFolder whole;
  whole.describe();
  whole.record(0, "a", "weight", R"("sqnr":31,"cur_amax":1)");
  whole.finding(0, "I2", "a", "activation", "1", "scales differ", R"("sets":"rank 0 against rank 1")");
  whole.healthy_step(0);
  std::ifstream file(whole.path() / "metrics" / "rank_0.jsonl", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  for (std::size_t length = 0; length < text.size(); length += 7) {
    const RunFolder folder;
    folder.write("run.json", text.substr(0, length));
    folder.write("metrics/rank_0.jsonl", text.substr(0, length));
    const Verdict verdict = judge(folder.path());
    EXPECT_NE(verdict.outcome, Outcome::kHealthy) << length;
    EXPECT_FALSE(as_text(verdict).empty());
    EXPECT_FALSE(as_json(verdict).empty());
  }
}

TEST(HostileRecords, ControlCharactersDoNotReachTheTerminalOrTheYaml) {
  const RunFolder folder;
  folder.describe();
  folder.finding(0, "I7", R"(a\u001b[31m\nb: [x)", "weight", "0", R"(codes\u0007changed)");
  folder.healthy_step(0);
  const std::string text = as_text(judge(folder.path()));
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.find('\a'), std::string::npos);
  EXPECT_THAT(text, HasSubstr("layer_types: [all]"));
}

}  // namespace
}  // namespace amaxscope::report
