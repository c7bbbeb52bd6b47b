#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "runtime/sinks/file_sinks.hpp"
#include "tests/runtime/sinks/sink_fixture.hpp"

namespace amaxscope {
namespace {

using nlohmann::json;
using testing::WriteProbe;

class JsonLinesSink : public testing::SinkTest {
 protected:
  [[nodiscard]] std::filesystem::path file() const { return log_dir / "metrics" / "rank_0.jsonl"; }
  [[nodiscard]] std::unique_ptr<Sink> open(std::string run_id = "run-1", bool every_rank = false) const {
    return make_json_lines_sink(log_dir, 0, {.every_rank = every_rank, .run_id = std::move(run_id)});
  }
  /// Every line but the one of the opening.
  [[nodiscard]] std::vector<json> content() const {
    std::vector<json> out;
    for (const std::string& line : lines_of(file())) {
      json object = json::parse(line);
      if (!object.contains("schema_version")) out.push_back(std::move(object));
    }
    return out;
  }
};

TEST_F(JsonLinesSink, ALineHasTheAgreedShape) {
  auto sink = open();
  StatRecord record = record_at(12, 0.1);
  record.stats.push_back({"underflows%", 100.0, {"zero_amax", "no_history"}});
  sink->record(record);
  sink->end_of_step(12);
  const auto lines = lines_of(file());
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0], R"({"schema_version":1,"run_id":"run-1","rank":0})");
  EXPECT_EQ(
      lines[1],
      R"({"iteration":12,"layer":"decoder.layers.1.mlp.linear_fc1","tensor":"activation","phase":"forward",)"
      R"("stats":{"cur_amax":0.10000000000000001,"underflows%":100},)"
      R"("flags":{"underflows%":["zero_amax","no_history"]},"recipe":"delayed","group":[0,1],"layout":"shard0"})");
  EXPECT_EQ(lines[2], R"({"iteration":12,"end_of_step":true,"records":1})");
}

TEST_F(JsonLinesSink, ARunThatWasClosedSaysSoOnEveryRank) {
  auto sink = open();
  sink->record(record_at(7));
  sink->end_of_step(7);
  sink->end_of_run(9);
  sink->close();
  EXPECT_EQ(lines_of(file()).back(), R"({"iteration":9,"end_of_run":true})");
  auto nothing = make_json_lines_sink(log_dir, 3, {.run_id = "run-1"});
  nothing->end_of_run(9);
  nothing->close();
  EXPECT_THAT(lines_of(log_dir / "metrics" / "rank_3.jsonl"),
              ::testing::ElementsAre(R"({"schema_version":1,"run_id":"run-1","rank":3})",
                                     R"({"iteration":9,"end_of_run":true})"));
}

TEST_F(JsonLinesSink, TheFormatIsNamedWhereThereIsOne) {
  auto sink = open();
  StatRecord record = record_at(0);
  record.format = "E4M3";
  record.stats.push_back({.name = "mxfp8_mse", .value = 1.0, .format = "E4M3+E8M0 scales"});
  record.stats.push_back({.name = "nvfp4_mse", .value = 1.0, .format = "E2M1+E4M3 scales"});
  sink->record(record);
  sink->record(record_at(0));
  sink->end_of_step(0);
  EXPECT_EQ(content().at(0)["format"], "E4M3");
  EXPECT_EQ(content().at(0)["formats"],
            (json{{"mxfp8_mse", "E4M3+E8M0 scales"}, {"nvfp4_mse", "E2M1+E4M3 scales"}}));
  EXPECT_FALSE(content().at(1).contains("format"));
  EXPECT_FALSE(content().at(1).contains("formats"));
}

TEST_F(JsonLinesSink, NumbersReadBackBitEqual) {
  const double smallest = double{0x1p-149F};  // 1.4e-45
  const std::vector<double> values = {3.2e-7, double{3.2e-7F}, smallest, 5e-324, 1.7976931348623157e308,
                                      -0.0,   16'777'217.0,    1.0 / 3.0};
  auto sink = open();
  StatRecord record = record_at(0);
  record.stats.clear();
  for (std::size_t i = 0; i < values.size(); ++i) record.stats.push_back({std::to_string(i), values[i], {}});
  sink->record(record);
  sink->end_of_step(0);
  const json stats = content().at(0)["stats"];
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(std::bit_cast<std::uint64_t>(stats[std::to_string(i)].get<double>()),
              std::bit_cast<std::uint64_t>(values[i]))
        << values[i];
  }
}

TEST_F(JsonLinesSink, NonFiniteNumbersAreTheAgreedStrings) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  auto sink = open();
  StatRecord record = record_at(0);
  record.stats = {{"a", nan, {}}, {"b", inf, {}}, {"c", -inf, {}}, {"d", std::copysign(nan, -1.0), {}}};
  sink->record(record);
  sink->end_of_step(0);
  EXPECT_EQ(content().at(0)["stats"],
            (json{{"a", "NaN"}, {"b", "Infinity"}, {"c", "-Infinity"}, {"d", "NaN"}}));
}

TEST_F(JsonLinesSink, AnyNameRoundTrips) {
  auto sink = open("r\"1\\");
  StatRecord record = record_at(0);
  record.layer = "a b\t\"x\"";
  record.tensor = "line\nbreak \xC3\xA9 \x01";
  sink->record(record);
  record.layer = "not UTF-8: \xFF";
  sink->record(record);
  sink->end_of_step(0);
  EXPECT_EQ(lines_of(file()).size(), 4U);
  EXPECT_EQ(json::parse(lines_of(file())[0])["run_id"], "r\"1\\");
  EXPECT_EQ(content().at(0)["layer"], "a b\t\"x\"");
  EXPECT_EQ(content().at(0)["tensor"], "line\nbreak \xC3\xA9 \x01");
  EXPECT_EQ(content().at(1)["layer"], "not UTF-8: \xEF\xBF\xBD");
}

TEST_F(JsonLinesSink, TheLeaderWritesUnlessEveryRankShould) {
  StatRecord follower = record_at(0);
  follower.leader = false;
  auto leaders = open();
  leaders->record(follower);
  leaders->end_of_step(0);
  leaders->close();
  EXPECT_FALSE(std::filesystem::exists(file()));
  auto all = open("run", true);
  all->record(follower);
  all->end_of_step(0);
  EXPECT_EQ(content().size(), 2U);
}

TEST_F(JsonLinesSink, ScalarsAndEvalRecords) {
  auto sink = open();
  StatRecord eval = record_at(3);
  eval.phase = Phase::kEval;
  sink->record(eval);
  sink->scalars(3, {{"loss", 2.5}, {"grad_norm", std::numeric_limits<double>::infinity()}});
  sink->scalars(3, {});
  sink->end_of_step(3);
  const auto lines = content();
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0]["phase"], "eval");
  EXPECT_EQ(lines[1], (json{{"iteration", 3}, {"scalars", {{"loss", 2.5}, {"grad_norm", "Infinity"}}}}));
  EXPECT_EQ(lines[2]["records"], 2);
}

TEST_F(JsonLinesSink, AStepIsOneWriteTheOpeningLineIncluded) {
  auto sink = open();
  for (int i = 0; i < 200; ++i) sink->record(record_at(0));
  EXPECT_EQ(WriteProbe::calls(), 0U);
  sink->end_of_step(0);
  EXPECT_EQ(WriteProbe::calls(), 1U);
  sink->end_of_step(1);
  EXPECT_EQ(WriteProbe::calls(), 1U);
  sink->record(record_at(2));
  sink->end_of_step(2);
  EXPECT_EQ(WriteProbe::calls(), 2U);
  EXPECT_EQ(lines_of(file()).size(), 1U + 201U + 2U);
}

TEST_F(JsonLinesSink, ARestartDoesNotRepeatIterations) {
  {
    auto sink = open("run-1");
    for (int i = 0; i <= 5; ++i) {
      sink->record(record_at(i));
      sink->scalars(i, {{"loss", 1.0}});
      sink->end_of_step(i);
    }
  }
  auto sink = open("run-2");
  for (int i = 4; i <= 7; ++i) {
    sink->record(record_at(i));
    sink->scalars(i, {{"loss", 1.0}});
    sink->end_of_step(i);
  }
  std::vector<int> completed;
  int run_headers = 0;
  for (const std::string& line : lines_of(file())) {
    const json object = json::parse(line);
    run_headers += static_cast<int>(object.contains("schema_version"));
    if (object.contains("end_of_step")) completed.push_back(object["iteration"]);
  }
  EXPECT_THAT(completed, ::testing::ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_EQ(run_headers, 2);
}

TEST_F(JsonLinesSink, TheStepThatACrashCutOffIsWrittenAgain) {
  {
    auto sink = open();
    for (int i = 0; i <= 2; ++i) {
      sink->record(record_at(i));
      sink->end_of_step(i);
    }
  }
  std::filesystem::resize_file(file(), std::filesystem::file_size(file()) - 5);  // into the marker of 2
  auto sink = open();
  for (int i = 1; i <= 3; ++i) {
    sink->record(record_at(i));
    sink->end_of_step(i);
  }
  std::vector<int> completed;
  int unreadable = 0;
  for (const std::string& line : lines_of(file())) {
    const json object = json::parse(line, nullptr, false);
    unreadable += static_cast<int>(object.is_discarded());
    if (object.is_object() && object.contains("end_of_step")) completed.push_back(object["iteration"]);
  }
  EXPECT_EQ(unreadable, 1);
  EXPECT_THAT(completed, ::testing::ElementsAre(0, 1, 2, 3));
}

TEST_F(JsonLinesSink, AMarkerThatLacksOnlyItsNewlineEndsItsStep) {
  {
    auto sink = open();
    sink->record(record_at(0));
    sink->end_of_step(0);
  }
  std::filesystem::resize_file(file(), std::filesystem::file_size(file()) - 1);
  auto sink = open("run-2");
  for (int i = 0; i < 2; ++i) {
    sink->record(record_at(i));
    sink->end_of_step(i);
  }
  std::vector<std::int64_t> completed;
  for (const json& line : content()) {
    if (line.contains("end_of_step")) completed.push_back(line["iteration"]);
  }
  EXPECT_THAT(completed, ::testing::ElementsAre(0, 1)) << "0 is not there twice";
}

// A check may find in a step what happened in the one before it, and one at the end of the run what happened
// in its last.
TEST_F(JsonLinesSink, AFindingOfAnEarlierStepIsNeitherLostNorRepeatedAtARestart) {
  const auto finding = [](std::int64_t iteration) {
    return Finding{
        .check = "a check", .iteration = iteration, .layer = {}, .tensor = {}, .ranks = {0}, .what = "x"};
  };
  const auto run = [&](int first, int end, bool closes) {
    auto sink = open("run-" + std::to_string(first) + std::to_string(end));
    for (int i = first; i < end; ++i) {
      sink->record(record_at(i));
      if (i > 0) sink->finding(finding(i - 1));
      sink->end_of_step(i);
    }
    if (!closes) return;
    sink->finding(finding(end - 1));
    sink->end_of_run(end - 1);
  };
  run(0, 3, false);  // killed after 2, in which it found something of 1
  run(1, 4, false);
  run(3, 4, true);  // killed before it was closed
  run(3, 4, true);  // once more, when all is said
  std::vector<std::int64_t> found;
  for (const json& line : content()) {
    if (line.contains("finding")) found.push_back(line["iteration"]);
  }
  EXPECT_THAT(found, ::testing::ElementsAre(0, 1, 2, 3));
}

TEST_F(JsonLinesSink, TheLastMarkerIsFoundFarFromTheEndAndNotInNames) {
  {
    auto sink = open();
    sink->record(record_at(8));
    sink->end_of_step(8);
  }
  std::string cut;  // a large step of a run that ended before its marker
  for (int i = 0; i < 3000; ++i)
    cut += R"({"iteration":9,"layer":"\"end_of_step\":true","stats":{}})"
           "\n";
  append(file(), cut);
  auto sink = open();
  sink->record(record_at(8));
  sink->record(record_at(9));
  sink->end_of_step(9);
  const auto lines = lines_of(file());
  EXPECT_EQ(json::parse(lines.back()), (json{{"iteration", 9}, {"end_of_step", true}, {"records", 1}}));
}

TEST_F(JsonLinesSink, CloseKeepsLinesOfAStepWithoutAMarker) {
  auto sink = open();
  sink->record(record_at(0));
  sink->close();
  const auto lines = content();
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_FALSE(lines[0].contains("end_of_step"));
}

TEST_F(JsonLinesSink, AFullDiskIsAnErrorAndLaterLinesStayReadable) {
  auto sink = open();
  sink->record(record_at(0));
  sink->end_of_step(0);
  WriteProbe::let_disk_be_full_after(30);
  sink->record(record_at(1));
  EXPECT_THROW(sink->end_of_step(1), Error);
  WriteProbe::reset();
  sink->record(record_at(2));
  sink->end_of_step(2);
  const auto lines = lines_of(file());
  ASSERT_EQ(lines.size(), 5U);  // opening, 0, marker, 2, marker
  EXPECT_EQ(json::parse(lines[3])["iteration"], 2);
}

}  // namespace
}  // namespace amaxscope
