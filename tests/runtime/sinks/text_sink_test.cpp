#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <regex>

#include "core/error.hpp"
#include "runtime/sinks/file_sinks.hpp"
#include "tests/runtime/sinks/sink_fixture.hpp"

namespace amaxscope {
namespace {

using testing::WriteProbe;

/// 2026-01-31 05:11:57.884 on this machine's clock.
class StoppedClock final : public Clock {
 public:
  [[nodiscard]] std::chrono::system_clock::time_point now() const override {
    std::tm local{};
    local.tm_year = 126;
    local.tm_mday = 31;
    local.tm_hour = 5;
    local.tm_min = 11;
    local.tm_sec = 57;
    local.tm_isdst = -1;
    return std::chrono::system_clock::from_time_t(std::mktime(&local)) + std::chrono::milliseconds(884);
  }
};

class TextSink : public testing::SinkTest {
 protected:
  [[nodiscard]] std::filesystem::path file(int rank = 0) const {
    return log_dir / "nvdlfw_inspect_statistics_logs" /
           ("nvdlfw_inspect_globalrank-" + std::to_string(rank) + ".log");
  }
  [[nodiscard]] std::unique_ptr<Sink> open(int rank = 0) const {
    return make_text_sink(log_dir, rank, std::make_shared<StoppedClock>());
  }
  void write_step(Sink& sink, std::int64_t iteration) const {
    sink.record(record_at(iteration, static_cast<double>(iteration)));
    sink.end_of_step(iteration);
  }
};

TEST_F(TextSink, WritesTheReferencesLine) {
  auto sink = open(3);
  StatRecord record = record_at(7, 3.2e-7);
  record.stats.push_back({"underflows%", 12.5, {"zero_amax"}});
  sink->record(record);
  sink->end_of_step(7);
  EXPECT_EQ(
      read(file(3)),
      "2026-01-31 05:11:57,884 - INFO - decoder.layers.1.mlp.linear_fc1_activation_cur_amax \t\t\t\t "
      "iteration=000007 \t\t\t\t value=3.2e-07\n"
      "2026-01-31 05:11:57,884 - INFO - decoder.layers.1.mlp.linear_fc1_activation_underflows% \t\t\t\t "
      "iteration=000007 \t\t\t\t value=12.5\n");
}

// How scripts that people have take the lines apart.
TEST_F(TextSink, ExistingParsersFindTheirParts) {
  auto sink = make_text_sink(log_dir, 0);
  sink->record(record_at(1234567, 0x1.555555p-3));
  sink->end_of_step(1234567);
  const std::regex line(R"(^(\S+ \S+) - INFO - (\S+)\s+iteration=(\d{6,})\s+value=(\S+)$)");
  const auto lines = lines_of(file());
  ASSERT_EQ(lines.size(), 1U);
  std::smatch parts;
  ASSERT_TRUE(std::regex_match(lines[0], parts, line));
  EXPECT_TRUE(std::regex_match(parts[1].str(), std::regex(R"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})")));
  EXPECT_EQ(parts[2], "decoder.layers.1.mlp.linear_fc1_activation_cur_amax");
  EXPECT_EQ(parts[3], "1234567");
  EXPECT_EQ(std::stof(parts[4]), 0x1.555555p-3F);  // nine digits read back as the same float
}

TEST_F(TextSink, NonFiniteValuesAsPythonPrintsThem) {
  auto sink = open();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  StatRecord record = record_at(0);
  record.stats = {{"a", nan, {}}, {"b", std::copysign(nan, -1.0), {}}, {"c", inf, {}}, {"d", -inf, {}}};
  sink->record(record);
  sink->end_of_step(0);
  std::vector<std::string> values;
  for (const std::string& line : lines_of(file())) values.push_back(line.substr(line.rfind('=') + 1));
  EXPECT_THAT(values, ::testing::ElementsAre("nan", "nan", "inf", "-inf"));
}

TEST_F(TextSink, TrainingPhasesOnlyAndEveryRank) {
  auto sink = open();
  for (const Phase phase : {Phase::kForward, Phase::kRecompute, Phase::kBackward, Phase::kEval}) {
    StatRecord record = record_at(0);
    record.tensor = std::string(to_string(phase));
    record.phase = phase;
    record.leader = false;
    sink->record(record);
  }
  sink->end_of_step(0);
  const auto lines = lines_of(file());
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_THAT(lines[0], ::testing::HasSubstr("_forward_"));
  EXPECT_THAT(lines[1], ::testing::HasSubstr("_backward_"));
}

TEST_F(TextSink, AStepIsOneWriteAndNothingBeforeItsEnd) {
  auto sink = open();
  for (int i = 0; i < 500; ++i) sink->record(record_at(4));
  EXPECT_EQ(WriteProbe::calls(), 0U);
  EXPECT_FALSE(std::filesystem::exists(file()));
  sink->end_of_step(4);
  EXPECT_EQ(WriteProbe::calls(), 1U);
  sink->end_of_step(5);
  EXPECT_EQ(WriteProbe::calls(), 1U);
  EXPECT_EQ(lines_of(file()).size(), 500U);
}

TEST_F(TextSink, ALineBreakInANameStaysOnTheLine) {
  auto sink = open();
  StatRecord record = record_at(0);
  record.layer = "a\nb\rc";
  sink->record(record);
  sink->end_of_step(0);
  const auto lines = lines_of(file());
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_THAT(lines[0], ::testing::HasSubstr(R"(a\nb\rc_activation_cur_amax)"));
}

TEST_F(TextSink, ARestartAppendsWithoutRepeating) {
  {
    auto sink = open();
    for (int i = 0; i < 3; ++i) write_step(*sink, i);
    sink->close();
  }
  auto sink = open();
  for (int i = 1; i < 5; ++i) write_step(*sink, i);
  const auto lines = lines_of(file());
  ASSERT_EQ(lines.size(), 5U);
  for (int i = 0; i < 5; ++i) {
    EXPECT_THAT(lines[static_cast<std::size_t>(i)],
                ::testing::HasSubstr("iteration=00000" + std::to_string(i)));
  }
}

TEST_F(TextSink, AStepThatWasCutOffIsWrittenAgain) {
  {
    auto sink = open();
    write_step(*sink, 0);
    sink->record(record_at(1));
    sink->record(record_at(1));
    sink->end_of_step(1);
  }
  std::filesystem::resize_file(file(), std::filesystem::file_size(file()) - 10);
  auto sink = open();
  for (int i = 0; i < 3; ++i) write_step(*sink, i);
  const auto lines = lines_of(file());
  ASSERT_EQ(lines.size(), 3U) << "nothing of the first attempt at 1 is left";
  EXPECT_THAT(lines[1], ::testing::EndsWith("iteration=000001 \t\t\t\t value=1"));
  EXPECT_THAT(lines[2], ::testing::EndsWith("iteration=000002 \t\t\t\t value=2"));
}

// Nothing in the file tells that a line is missing, or that a value has lost its last digits.
TEST_F(TextSink, AStepThatWasCutOffBetweenTwoLinesOrWithinANumberIsWhole) {
  for (const std::uintmax_t kept : {std::uintmax_t{1}, std::uintmax_t{0}}) {
    std::filesystem::remove(file());
    StatRecord record = record_at(1, 0.125);
    const auto write_both = [&](Sink& sink) {
      record.tensor = "weight";
      sink.record(record);
      record.tensor = "gradient";
      sink.record(record);
      sink.end_of_step(1);
    };
    {
      auto sink = open();
      write_step(*sink, 0);
      write_both(*sink);
    }
    const std::string whole = read(file());
    const std::size_t first = whole.find("weight");
    std::filesystem::resize_file(file(), kept == 1 ? whole.find('\n', first) + 1 : whole.size() - 3);
    auto sink = open();
    write_step(*sink, 0);
    write_both(*sink);
    EXPECT_EQ(read(file()), whole);
  }
}

TEST_F(TextSink, ARestartAfterACutOffLineLeavesItOut) {
  {
    auto sink = open();
    for (int i = 0; i < 2; ++i) write_step(*sink, i);
  }
  append(file(), "2026-01-31 05:11:57,884 - INFO - x \t\t\t\t iteration=000002 \t\t\t\t value=0.1");
  auto sink = open();
  write_step(*sink, 5);
  const auto lines = lines_of(file());
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_THAT(lines[2], ::testing::EndsWith("iteration=000005 \t\t\t\t value=5"));
}

TEST_F(TextSink, CloseWritesWhatIsLeft) {
  auto sink = open();
  sink->record(record_at(0));
  sink->close();
  sink->close();
  EXPECT_EQ(lines_of(file()).size(), 1U);
}

TEST_F(TextSink, AFullDiskIsAnErrorAndLeavesWhatWasThere) {
  auto sink = open();
  write_step(*sink, 0);
  WriteProbe::let_disk_be_full_after(20);
  try {
    write_step(*sink, 1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("nvdlfw_inspect_globalrank-0.log"));
  }
  WriteProbe::reset();
  ASSERT_EQ(lines_of(file()).size(), 1U) << "the line that did not fit is not there in part";
  write_step(*sink, 2);
  const auto lines = lines_of(file());
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_THAT(lines[1], ::testing::EndsWith("iteration=000002 \t\t\t\t value=2"));
}

TEST_F(TextSink, AFolderThatCannotBeMadeIsAnError) {
  append(log_dir / "nvdlfw_inspect_statistics_logs", "a file is in the way");
  auto sink = open();
  EXPECT_THROW(write_step(*sink, 0), Error);
}

}  // namespace
}  // namespace amaxscope
