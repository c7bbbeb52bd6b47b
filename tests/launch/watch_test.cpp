// A log directory that grows while it is watched.
#include <gmock/gmock.h>

#include <chrono>

#include "core/error.hpp"
#include "launch/run_follower.hpp"
#include "launch/watch_text.hpp"
#include "tests/report/run_folder.hpp"

namespace amaxscope::launch {
namespace {

using report::test::RunFolder;
using std::chrono::seconds;
using std::chrono::system_clock;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const system_clock::time_point kNow = system_clock::from_time_t(1'767'225'600);  // 2026-01-01T00:00:00Z

void describe(const RunFolder& folder, const char* state) {
  std::filesystem::remove(folder.path() / "run.json");
  folder.write("run.json",
               fmt::format(R"({{"schema_version":1,"runs":[{{"run_id":"a run","state":"{}",
      "start":"2026-01-01T00:00:00.000Z","first_iteration":0,{}"world_size":2,"parallel":{{"tp":2}},
      "options":{{"recipe":"delayed","steps":"100"}},"config":{{"source":"x.yaml","digest":"0","text":""}},
      "section_layers":{{}},"alters_numerics":[],"other_paths":[]}}]}})",
                           state, std::string_view(state) == "closed" ? "\"last_iteration\":4," : ""));
}

TEST(RunFollower, SeesWhatIsNewAtEachLook) {
  const RunFolder folder;
  RunFollower follower(folder.path());
  RunView view = follower.look(kNow);
  EXPECT_FALSE(view.iteration);
  EXPECT_EQ(view.verdict.outcome, report::Outcome::kNoData);
  EXPECT_THAT(watch_screen(view, "log", {}),
              AllOf(HasSubstr("no run.json yet"), HasSubstr("no step completed yet")));

  describe(folder, "unclosed");
  folder.line(R"({"schema_version":1,"run_id":"a run","rank":0})");
  folder.healthy_step(0, 5.5);
  folder.healthy_step(1, 5.0);
  view = follower.look(kNow + seconds(2));
  EXPECT_EQ(view.iteration, 1);
  EXPECT_EQ(view.steps, 100);
  EXPECT_EQ(view.rate, 1.0) << "two steps in the two seconds since the start";
  EXPECT_EQ(view.scalars.at("loss").value, 5.0);
  EXPECT_EQ(view.verdict.outcome, report::Outcome::kHealthy);
  EXPECT_THAT(watch_line(view),
              AllOf(HasSubstr("iteration 1 (the last is 99), 1 a second, loss 5, grad_norm 1;"),
                    HasSubstr("verdict: nothing found")));

  // Half a line: not read before its end has come.
  folder.write("metrics/rank_0.jsonl", R"({"iteration":2,"scalars":{"loss":4)");
  view = follower.look(kNow + seconds(3));
  EXPECT_EQ(view.iteration, 1);
  EXPECT_EQ(view.reading.unreadable, 0U);
  folder.write("metrics/rank_0.jsonl", ".5,\"checked/I1\":4}}\n");
  folder.end_of_step(2);
  folder.healthy_step(3, 4.25);
  folder.healthy_step(4, 4.0);
  view = follower.look(kNow + seconds(4));
  EXPECT_EQ(view.iteration, 4);
  EXPECT_EQ(view.rate, 3.0);
  EXPECT_EQ(view.scalars.at("loss").value, 4.0);
  EXPECT_FALSE(view.closed);

  describe(folder, "closed");
  EXPECT_TRUE(follower.look(kNow + seconds(5)).closed);
}

TEST(RunFollower, AnAlarmIsShownOnce) {
  const RunFolder folder;
  describe(folder, "unclosed");
  RunFollower follower(folder.path());
  folder.healthy_step(0);
  folder.finding(1, "I3", "fc1", "weight", "1", "the copies differ");
  folder.healthy_step(1);
  RunView view = follower.look(kNow);
  EXPECT_THAT(view.alarms, ElementsAre(Field(&Alarm::iteration, 1)));
  EXPECT_EQ(alarm_line(view.alarms[0]), "iteration 1: I3 of fc1 weight: the copies differ");
  EXPECT_EQ(view.verdict.outcome, report::Outcome::kFound);
  folder.finding(2, "I3", "fc1", "weight", "1", "the copies differ");
  folder.healthy_step(2);
  view = follower.look(kNow + seconds(1));
  EXPECT_THAT(view.alarms, IsEmpty());
  EXPECT_EQ(view.alarm_count, 1U);
  EXPECT_THAT(watch_screen(view, "log", {}), HasSubstr("the copies differ"));
}

TEST(RunFollower, AFileOfAnotherRankThatComesLater) {
  const RunFolder folder;
  describe(folder, "unclosed");
  RunFollower follower(folder.path());
  folder.healthy_step(0);
  static_cast<void>(follower.look(kNow));
  folder.line(
      R"({"iteration":1,"layer":"b.fc1","tensor":"activation","phase":"forward","stats":{"sqnr":21.5,"flushed%":3},)"
      R"("flags":{},"recipe":"delayed","group":[1],"layout":"shard0"})",
      /*rank=*/1);
  folder.line(R"({"iteration":1,"end_of_step":true,"records":1})", 1);
  const RunView view = follower.look(kNow + seconds(1));
  ASSERT_EQ(view.worst.size(), 1U);
  EXPECT_EQ(view.worst[0].place.layer, "b.fc1");
  EXPECT_EQ(view.worst[0].sqnr, 21.5);
  EXPECT_EQ(view.worst[0].flushed, 3.0);
  EXPECT_FALSE(view.worst[0].saturated);
}

TEST(RunFollower, WritesNothing) {
  const RunFolder folder;
  describe(folder, "unclosed");
  folder.healthy_step(0);
  const auto entries = [&] {
    std::vector<std::pair<std::string, std::filesystem::file_time_type>> found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path())) {
      found.emplace_back(entry.path().string(), entry.last_write_time());
    }
    return found;
  };
  const auto before = entries();
  RunFollower follower(folder.path());
  static_cast<void>(follower.look(kNow));
  static_cast<void>(follower.look(kNow + seconds(1)));
  EXPECT_EQ(entries(), before);
}

TEST(RunFollower, NoDirectory) { EXPECT_THROW(RunFollower("/nonexistent"), Error); }

RunView with_ranks() {
  RunView view;
  view.ranks = {{0, "training", "training", 40},
                {1, "training", "training", 40},
                {2, "training", "step()", 37},
                {3, "detached", "detached in iteration 12: a mismatch", 40}};
  return view;
}

TEST(WatchText, RanksThatLagOrDetached) {
  EXPECT_EQ(ranks_in_trouble(with_ranks()),
            "rank 3: detached (detached in iteration 12: a mismatch); rank 2: behind, at iteration 37 while "
            "others are "
            "at 40");
  EXPECT_THAT(watch_screen(with_ranks(), "log", {}), HasSubstr("\nranks         3 training, 1 detached\n"));
  RunView well = with_ranks();
  well.ranks.resize(2);
  well.ranks[1].iteration = 39;  // a step more or less is how ranks work
  EXPECT_EQ(ranks_in_trouble(well), "");
}

TEST(WatchText, AScreenKeepsToItsSizeAndColorIsAskedFor) {
  RunView view = with_ranks();
  view.verdict.sentence = "nothing found in what was measured";
  view.verdict.outcome = report::Outcome::kHealthy;
  for (int i = 0; i < 60; ++i) view.recent.push_back({i, "I1", "a layer", "weight", std::string(200, 'x')});
  view.alarm_count = 60;
  const std::string text =
      watch_screen(view, std::string(300, 'd'), {.columns = 60, .rows = 20, .color = false});
  std::size_t lines = 0;
  std::size_t longest = 0;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line); ++lines) longest = std::max(longest, line.size());
  EXPECT_EQ(lines, 19U);
  EXPECT_EQ(longest, 60U);
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(watch_screen(view, "log", {.columns = 80, .rows = 40, .color = true}),
              HasSubstr("\x1b[32mverdict "));
}

TEST(WatchText, WhatStrangersWroteDoesNotReachTheTerminal) {
  RunView view;
  view.recent = {{1, "I1\x1b[2J", "a\nb", "w", "\x1b]0;title\x07"}};
  view.alarm_count = 1;
  EXPECT_THAT(watch_screen(view, "log", {}), AllOf(Not(HasSubstr("\x1b")), HasSubstr("I1?[2J of a?b w")));
}

}  // namespace
}  // namespace amaxscope::launch
