// cases.md case 17: a file that is empty, cut off, mis-ordered or miscounted is no result, and neither is
// none.
#include "launch/metrics_check.hpp"

#include <gmock/gmock.h>

#include <functional>

#include "core/error.hpp"
#include "runtime/sinks/file_sinks.hpp"
#include "runtime/sinks/run_file.hpp"
#include "tests/runtime/sinks/sink_fixture.hpp"

namespace amaxscope::launch {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class MetricsCheck : public testing::SinkTest {
 protected:
  /// Two ranks, iterations first .. last, two records and a scalar a step, written by the program's own
  /// sinks.
  void write_run(const std::string& id, std::int64_t first, std::int64_t last, bool close = true) const {
    RunDescription run;
    run.run_id = id;
    run.world_size = 2;
    run.first_iteration = first;
    write_run_file(log_dir, run);
    for (int rank = 0; rank < 2; ++rank) {
      const auto sink = make_json_lines_sink(log_dir, rank, {.run_id = id});
      for (std::int64_t iteration = first; iteration <= last; ++iteration) {
        StatRecord record = record_at(iteration);
        record.layer = rank == 0 ? "a.fc1" : "b.fc1";
        sink->record(record);
        record.tensor = "weight";
        sink->record(record);
        sink->scalars(iteration, {{"loss", 1.0}});
        sink->end_of_step(iteration);
      }
      if (close) sink->end_of_run(last);
      sink->close();
    }
    if (close) mark_run_closed(log_dir, id, last);
  }
  [[nodiscard]] std::filesystem::path file(int rank = 0) const {
    return log_dir / "metrics" / ("rank_" + std::to_string(rank) + ".jsonl");
  }
  void write(const std::filesystem::path& path, const std::string& text) const {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
  }
  /// The problems after rank 0's lines were changed.
  std::vector<std::string> after(const std::function<void(std::vector<std::string>&)>& change) const {
    std::vector<std::string> lines = lines_of(file());
    change(lines);
    std::string text;
    for (const std::string& line : lines) text += line + "\n";
    write(file(), text);
    return problems();
  }
  [[nodiscard]] std::vector<std::string> problems() const { return check_metrics(log_dir).problems; }
};

// Lines of rank 0: 1 opening, then for each iteration two records, scalars, marker: 2-5, 6-9, 10-13; 14 ends
// the run.

TEST_F(MetricsCheck, AWholeRun) {
  write_run("r", 4, 6);
  const amaxscope::launch::MetricsCheck found = check_metrics(log_dir);
  EXPECT_THAT(found.problems, IsEmpty());
  EXPECT_THAT(found.notes, IsEmpty());
  EXPECT_THAT(found.runs, ElementsAre(CheckedRun{"r", true, 2, 4, 6}));
  EXPECT_EQ(found.files, 2);
  EXPECT_EQ(found.records, 12U);
  EXPECT_EQ(found.layers, 2U);
  EXPECT_EQ(found.steps, 3U);
  EXPECT_EQ(found.first_iteration, 4);
  EXPECT_EQ(found.last_iteration, 6);
}

TEST_F(MetricsCheck, AnUnclosedRunIsSaidSo) {
  write_run("r", 0, 2, /*close=*/false);
  const amaxscope::launch::MetricsCheck found = check_metrics(log_dir);
  EXPECT_THAT(found.problems, IsEmpty());
  EXPECT_THAT(found.notes, ElementsAre(HasSubstr("run r is marked unclosed")));
}

TEST_F(MetricsCheck, NothingAtAll) {
  EXPECT_THAT(problems(),
              ElementsAre(HasSubstr("run.json: is not there"), HasSubstr("nothing was recorded")));
  EXPECT_THROW(check_metrics(log_dir / "nosuch"), Error);
  write(log_dir / "run.json", "");
  EXPECT_THAT(problems(), ElementsAre(HasSubstr("run.json: is empty"), HasSubstr("nothing was recorded")));
}

TEST_F(MetricsCheck, ARunThatRecordedNothingIsNotHealthy) {
  write_run("r", 0, -1);
  EXPECT_THAT(problems(), ElementsAre(HasSubstr("metrics/: no completed step")));
  std::filesystem::remove_all(log_dir / "metrics");
  EXPECT_THAT(problems(), ElementsAre(HasSubstr("nothing of it is in rank_0.jsonl, rank_1.jsonl"),
                                      HasSubstr("metrics/: no file")));
}

TEST_F(MetricsCheck, AnEmptyFile) {
  write_run("r", 0, 2);
  write(file(), "");
  EXPECT_THAT(problems(), ElementsAre("metrics/rank_0.jsonl:1: the file is empty: nothing was recorded",
                                      "metrics/: run r had 2 ranks; nothing of it is in rank_0.jsonl"));
}

TEST_F(MetricsCheck, CutOffInALine) {
  write_run("r", 0, 2);
  const std::string whole = read(file());
  const std::string text = whole.substr(0, whole.rfind("{\"iteration\":2,\"end_of_run\""));
  write(file(), text.substr(0, text.size() - 10));
  EXPECT_THAT(problems(), ElementsAre(HasSubstr("rank_0.jsonl:13: the line is cut off"),
                                      AllOf(HasSubstr("rank_0.jsonl:10:"), HasSubstr("end-of-step marker"))));
  write(file(), text.substr(0, text.size() - 1));
  EXPECT_THAT(problems(), ::testing::SizeIs(2)) << "a line without its end is not whole, whatever is in it";
}

TEST_F(MetricsCheck, CutOffBetweenLines) {
  write_run("r", 0, 2);
  EXPECT_THAT(after([](auto& lines) { lines.resize(11); }),
              ElementsAre(AllOf(HasSubstr("rank_0.jsonl:10: 2 lines of iteration 2"), HasSubstr("marker"))));
}

TEST_F(MetricsCheck, CutOffBetweenSteps) {
  write_run("r", 0, 2);
  EXPECT_THAT(after([](auto& lines) { lines.resize(9); }),
              ElementsAre(AllOf(HasSubstr("rank_0.jsonl:9: run r was closed"), HasSubstr("cut off"))));
}

TEST_F(MetricsCheck, ARankIsMissing) {
  write_run("r", 0, 2);
  std::filesystem::remove(file(1));
  EXPECT_THAT(problems(), ElementsAre("metrics/: run r had 2 ranks; nothing of it is in rank_1.jsonl"));
}

TEST_F(MetricsCheck, ARankThatHadNothingToRecordStillSaysThatTheRunEnded) {
  write_run("r", 0, 2);
  std::filesystem::remove(file(1));
  const auto sink = make_json_lines_sink(log_dir, 1, {.run_id = "r"});
  sink->end_of_run(2);
  sink->close();
  EXPECT_THAT(problems(), IsEmpty());
}

TEST_F(MetricsCheck, TheEndIsOfAnotherIterationOrNoEnd) {
  write_run("r", 0, 2);
  EXPECT_THAT(after([](auto& lines) { lines[13] = R"({"iteration":1,"end_of_run":true})"; }),
              ElementsAre("metrics/rank_0.jsonl:14: the run ends with iteration 1; run.json says 2"));
  EXPECT_THAT(after([](auto& lines) {
                lines[13] = R"({"iteration":2,"end_of_run":true})";
                lines.push_back(R"({"iteration":3,"scalars":{"loss":1}})");
                lines.push_back(R"({"iteration":3,"end_of_step":true,"records":1})");
              }),
              ElementsAre("metrics/rank_0.jsonl:15: a line of run r after its end",
                          HasSubstr("rank_0.jsonl:16: iteration 3, but run.json says")));
}

TEST_F(MetricsCheck, AMemberOfAnotherType) {
  write_run("r", 0, 2);
  const std::vector<std::string> lines = lines_of(file());
  const std::string record = lines[1];
  const auto with = [&](const std::string& from, const std::string& to, int line = 1) {
    std::string changed = lines[static_cast<std::size_t>(line)];
    const std::size_t at = changed.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    if (at != std::string::npos) changed.replace(at, from.size(), to);
    return after([&](auto& all) {
      all = lines;
      all[static_cast<std::size_t>(line)] = changed;
    });
  };
  const auto problem = [&](const std::string& what) {
    return ElementsAre("metrics/rank_0.jsonl:2: record: " + what);
  };
  EXPECT_THAT(
      with("\"cur_amax\":1", "\"cur_amax\":true"),
      problem("\"stats.cur_amax\" is true; a number, \"NaN\", \"Infinity\" or \"-Infinity\" is wanted"));
  EXPECT_THAT(with("\"cur_amax\":1", "\"cur_amax\":\"nan\""), ElementsAre(HasSubstr("stats.cur_amax")));
  EXPECT_THAT(with("\"cur_amax\":1", "\"cur_amax\":\"NaN\""), IsEmpty());
  EXPECT_THAT(with("\"phase\":\"forward\"", "\"phase\":\"sideways\""),
              problem("\"phase\" is \"sideways\"; one of forward, recompute, backward, eval is wanted"));
  EXPECT_THAT(with("\"layout\":\"shard0\"", "\"layout\":0"),
              ElementsAre(HasSubstr("one of replicated, shard0")));
  EXPECT_THAT(with("\"layer\":\"a.fc1\"", "\"layer\":\"\""), problem("\"layer\" is empty"));
  EXPECT_THAT(with("\"recipe\":\"delayed\",", ""), problem("has no \"recipe\"; a text is wanted"));
  EXPECT_THAT(with("\"group\":[0,1]", "\"group\":[0,2]"), problem("\"group\" names rank 2; the run had 2"));
  EXPECT_THAT(with("\"group\":[0,1]", "\"group\":[-1]"), problem("\"group\" is -1; ranks from 0 is wanted"));
  EXPECT_THAT(with("\"flags\":{}", "\"flags\":{\"max\":[\"zero\"]}"),
              problem("\"flags\" has \"max\", which is not in \"stats\""));
  EXPECT_THAT(with("\"stats\":{\"cur_amax\":1}", "\"stats\":[1]"),
              ElementsAre(HasSubstr("\"stats\" is [1]")));
  EXPECT_THAT(with("\"loss\":1", "\"loss\":null", 3),
              ElementsAre(HasSubstr("rank_0.jsonl:4: scalars: \"scalars.loss\" is null")));
  EXPECT_THAT(with("\"scalars\"", "\"scaler\"", 3),
              ElementsAre(HasSubstr("rank_0.jsonl:4: is none of the lines")));
  EXPECT_THAT(with("{\"iteration\":0,", "{\"of\":\"tomorrow\",\"iteration\":0,"), IsEmpty())
      << "members that are not known are passed by";
}

TEST_F(MetricsCheck, AFileFullOfMistakesDoesNotFillTheScreen) {
  write_run("r", 0, 99);
  const auto found = after([](auto& lines) {
    for (std::string& line : lines) {
      if (const std::size_t at = line.find("\"recipe\""); at != std::string::npos)
        line.replace(at, 8, "\"recept\"");
    }
  });
  EXPECT_EQ(found.size(), 21U);
  EXPECT_EQ(found.back(), "metrics/rank_0.jsonl: and 180 more");
}

TEST_F(MetricsCheck, Miscounted) {
  write_run("r", 0, 2);
  EXPECT_THAT(after([](auto& lines) { lines.erase(lines.begin() + 5); }),
              ElementsAre("metrics/rank_0.jsonl:8: the marker of iteration 1 counts 3 lines, 2 are there"));
}

TEST_F(MetricsCheck, ARecordTwice) {
  write_run("r", 0, 2);
  EXPECT_THAT(
      after([](auto& lines) { lines[6] = lines[5]; }),
      ElementsAre(AllOf(HasSubstr("rank_0.jsonl:7: a second record of a.fc1"), HasSubstr("iteration 1"))));
}

TEST_F(MetricsCheck, StepsInAnotherOrder) {
  write_run("r", 0, 2);
  const auto found =
      after([](auto& lines) { std::rotate(lines.begin() + 1, lines.begin() + 5, lines.begin() + 9); });
  EXPECT_THAT(found,
              ::testing::Contains(HasSubstr("rank_0.jsonl:9: iteration 0 ends after iteration 1 has ended")));
}

TEST_F(MetricsCheck, ALineInAnotherStep) {
  write_run("r", 0, 2);
  const auto found = after([](auto& lines) { std::swap(lines[3], lines[7]); });  // the two scalars
  EXPECT_THAT(found,
              ::testing::Contains(HasSubstr("rank_0.jsonl:4: iteration 1 within the step of iteration 0")));
}

TEST_F(MetricsCheck, ALineThatIsNoJson) {
  write_run("r", 0, 2);
  EXPECT_THAT(after([](auto& lines) { lines[6] = "\xFF{"; }),
              ::testing::Contains(HasSubstr("rank_0.jsonl:7: is no JSON object")));
}

TEST_F(MetricsCheck, TheOpeningLineIsMissingOrOfAnother) {
  write_run("r", 0, 2);
  const std::string whole = read(file());
  EXPECT_THAT(after([](auto& lines) { lines.erase(lines.begin()); }),
              ElementsAre(HasSubstr("rank_0.jsonl:1: the line that says of which run this is is missing"),
                          HasSubstr("nothing of it is in rank_0.jsonl")));
  write(file(), whole);
  std::filesystem::rename(file(1), file(3));
  EXPECT_THAT(problems(), ElementsAre(HasSubstr("rank_3.jsonl:1: the rank is not the one"),
                                      HasSubstr("nothing of it is in rank_1.jsonl")));
  std::filesystem::rename(file(3), file(1));
  EXPECT_THAT(after([](auto& lines) { lines[0] = R"({"schema_version":2,"run_id":"x","rank":0})"; }),
              ElementsAre(HasSubstr("schema version 2"), HasSubstr("run \"x\" is not in run.json"),
                          HasSubstr("nothing of it is in rank_0.jsonl")));
}

TEST_F(MetricsCheck, MoreThanTheRunHad) {
  write_run("r", 0, 2);
  mark_run_closed(log_dir, "r", 1);
  EXPECT_THAT(problems(), ElementsAre(HasSubstr("rank_0.jsonl:13: iteration 2, but"),
                                      HasSubstr("rank_0.jsonl:14: the run ends with iteration 2"),
                                      HasSubstr("rank_1.jsonl:13"), HasSubstr("rank_1.jsonl:14")));
}

TEST_F(MetricsCheck, ARunThatWentOnAfterACrashIsWhole) {
  write_run("first", 0, 2, /*close=*/false);
  append(file(), R"({"iteration":3,"layer":"a.fc1","tensor":"activ)");  // killed while it wrote
  write_run("second", 3, 4);
  const amaxscope::launch::MetricsCheck found = check_metrics(log_dir);
  EXPECT_THAT(found.problems, IsEmpty());
  EXPECT_THAT(found.notes, ElementsAre(HasSubstr("run first is marked unclosed"),
                                       AllOf(HasSubstr("rank_0.jsonl:14: run first ended within a step"))));
  EXPECT_EQ(found.steps, 5U);
}

TEST_F(MetricsCheck, FindingsOfTheCloseNeedNoStep) {
  write_run("r", 0, 2);
  const std::string finding =
      R"({"iteration":2,"finding":{"check":"I3","layer":"a","tensor":"weight","phase":"forward","microbatch":0,)"
      R"("ranks":[1],"what":"w","details":{"x":"y"}}})";
  EXPECT_THAT(after([&](auto& lines) { lines.insert(lines.end() - 1, finding); }), IsEmpty());
  EXPECT_EQ(check_metrics(log_dir).findings, 1U);
}

}  // namespace
}  // namespace amaxscope::launch
