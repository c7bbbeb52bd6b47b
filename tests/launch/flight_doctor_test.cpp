// `amaxscope doctor --flight` on pictures that are made here, and on a job.
#include "collectives/flight_recorder.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <future>
#include <numeric>
#include <optional>
#include <set>
#include <thread>

#include "collectives/flight_reader.hpp"
#include "core/error.hpp"
#include "tests/launch/train_fixture.hpp"

namespace amaxscope::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class FlightDoctor : public TrainFixture {
 protected:
  /// The recorder of a rank of this test's own, in DIR/flight.
  FlightRecorder& rank(int number) { return *ranks_.at(static_cast<std::size_t>(number)); }
  void make_ranks(int count) {
    std::vector<int> all(static_cast<std::size_t>(count));
    std::iota(all.begin(), all.end(), 0);
    for (int number = 0; number < count; ++number) {
      ranks_.push_back(FlightRecorder::in_directory(folder_ / "flight", number, count));
      ranks_.back()->add_group("tp", all);
      ranks_.back()->add_group("dp", all);
      ranks_.back()->set_state(FlightState::kTraining);
      ranks_.back()->set_iteration(7);
    }
  }
  static FlightOp call(std::string_view what, std::uint64_t count = 3, ReduceOp op = ReduceOp::kMax) {
    return {.operation = FlightOperation::kAllReduce,
            .tag = {.what = what, .layer = "fc1"},
            .count = count,
            .dtype = DType::kU32,
            .op = op};
  }
  void completes(int number, const FlightOp& op) {
    rank(number).end(rank(number).begin(0, op), FlightOutcome::kCompleted);
  }
  ProgramResult doctor(std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"doctor", "--flight", "."});
    return amaxscope(more);
  }
  /// Each rank makes its calls, named, and all complete.
  ProgramResult doctor_of(const std::vector<std::vector<std::string>>& calls) {
    make_ranks(static_cast<int>(calls.size()));
    for (std::size_t number = 0; number < calls.size(); ++number) {
      for (const std::string& what : calls[number]) completes(static_cast<int>(number), call(what));
    }
    return doctor();
  }

  std::vector<std::shared_ptr<FlightRecorder>> ranks_;
};

TEST_F(FlightDoctor, RanksThatAgreeAreFine) {
  const ProgramResult result = doctor_of({{"a", "b"}, {"a", "b"}, {"a"}});
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("./flight: 3 ranks"), HasSubstr("nothing wrong to be seen"),
                    ::testing::ContainsRegex("2 +[^ ]+ +[0-9]+ +training +7 +tp call 0: max a 3 x u32, "
                                             "fc1, iteration 7 - completed +[0-9.]+ s")));
}

TEST_F(FlightDoctor, AFinishedJobIsFine) {
  make_ranks(2);
  for (const auto& recorder : ranks_) recorder->set_state(FlightState::kFinished);
  EXPECT_EQ(doctor().status, 0);
}

TEST_F(FlightDoctor, ASkippedCallIsTheFirstDivergence) {
  const ProgramResult result = doctor_of({{"a", "b", "c"}, {"a", "b", "c"}, {"a", "b", "c"}, {"a", "c"}});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(
      result.out,
      AllOf(
          HasSubstr("first divergence: call 1 of tp (ranks 0-3)"),
          HasSubstr("\n  ranks 0-2: max b 3 x u32, fc1, iteration 7\n  rank 3: max c 3 x u32, fc1, iteration "
                    "7\n  suspect: rank 3\n"),
          HasSubstr("rank 3 skipped a call that the others made")));
}

TEST_F(FlightDoctor, AnExtraCallIsTheFirstDivergence) {
  const ProgramResult result = doctor_of({{"a", "c", "d"}, {"a", "b", "c", "d"}, {"a", "c", "d"}});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.out, AllOf(HasSubstr("call 1 of tp (ranks 0-2)"), HasSubstr("suspect: rank 1\n"),
                                HasSubstr("rank 1 made a call that the others did not make")));
}

TEST_F(FlightDoctor, CallsInAnotherOrder) {
  EXPECT_THAT(doctor_of({{"a", "b"}, {"a", "b"}, {"b", "a"}}).out,
              AllOf(HasSubstr("call 0 of tp"), HasSubstr("rank 2 made two calls in another order")));
}

TEST_F(FlightDoctor, TwoRanksThatDifferAreBothSuspect) {
  EXPECT_THAT(doctor_of({{"a"}, {"b"}}).out, HasSubstr("suspect: ranks 0, 1\n"));
}

TEST_F(FlightDoctor, AnotherOperationCountOrIteration) {
  make_ranks(4);
  completes(0, call("sums"));
  completes(1, call("sums", 3, ReduceOp::kSum));
  completes(2, call("sums", 4));
  rank(3).set_iteration(8);
  completes(3, call("sums"));
  const ProgramResult result = doctor();
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(
      result.out,
      AllOf(HasSubstr("rank 1: sum sums 3 x u32"), HasSubstr("rank 1 does another operation"),
            HasSubstr("rank 2 hands in another number"), HasSubstr("rank 3 is in another iteration")));
}

TEST_F(FlightDoctor, ARankThatHasNotComeIsFoundOnceItIsLate) {
  make_ranks(3);
  rank(0).begin(0, call("amax"));
  rank(1).begin(0, call("amax"));
  rank(2).set_where("reading the data");
  EXPECT_EQ(doctor().status, 0) << "ranks of a job in health wait for each other all the time";
  const ProgramResult result = doctor({"--stuck-after", "0"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(
      result.out,
      AllOf(
          HasSubstr("first divergence: call 0 of tp (ranks 0-2), since "),
          HasSubstr("\n  ranks 0, 1: max amax 3 x u32, fc1, iteration 7\n  rank 2: last seen in reading the "
                    "data, iteration 7, "),
          HasSubstr("suspect: rank 2\n"), HasSubstr("it is busy or blocked outside of the recorded")));
}

TEST_F(FlightDoctor, RanksThatWaitForEachOther) {
  make_ranks(2);
  rank(0).begin(0, call("amax"));
  rank(1).begin(1, call("gradients"));
  const ProgramResult result = doctor({"--stuck-after", "0"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.out, AllOf(HasSubstr("ranks 0, 1 wait for each other in different calls"),
                                HasSubstr("rank 1: in dp call 0: max gradients 3 x u32")));
}

TEST_F(FlightDoctor, ACallThatAllHaveEnteredAndNoneLeaves) {
  make_ranks(2);
  rank(0).begin(0, call("amax"));
  rank(1).begin(0, call("amax"));
  EXPECT_EQ(doctor().status, 0);
  EXPECT_THAT(doctor({"--stuck-after", "0"}).out, HasSubstr("All ranks of the group are in this call"));
}

TEST_F(FlightDoctor, WhoWaitsThroughOthersIsAConsequence) {
  make_ranks(3);
  // 0 waits in dp for 1 and 2, 1 waits in tp for 2 and 0: the end of every chain is 2 or a circle of 0 and 1
  // with it.
  const std::size_t pair = rank(1).add_group("pair", {1, 2});
  rank(2).add_group("pair", {1, 2});
  rank(0).begin(1, call("gradients"));
  rank(1).begin(pair, call("amax"));
  rank(2).set_state(FlightState::kFailed);
  rank(2).set_where("disk full");
  const ProgramResult result = doctor();
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("suspect: rank 2\n"), HasSubstr("waiting in call 0 of pair (ranks 1, 2)"),
                    HasSubstr("The others wait for rank 2: has failed: disk full")));
  EXPECT_THAT(result.out, Not(HasSubstr("also:"))) << "one cause, said once";
}

TEST_F(FlightDoctor, ADeadRankAndAMessageThatNeverComes) {
  make_ranks(2);
  const pid_t child = fork();
  if (child == 0) {
    const auto recorder = FlightRecorder::in_directory(folder_ / "flight", 1, 2);
    recorder->set_state(FlightState::kTraining);
    recorder->set_where("backward");
    raise(SIGKILL);
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_THAT(doctor().out, HasSubstr("rank 1: the process has ended without finishing"));
  rank(0).begin(
      0,
      {.operation = FlightOperation::kReceive, .tag = {.what = "activations"}, .count = 8, .world_peer = 1});
  const ProgramResult result = doctor();
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("first divergence: a message in tp"),
                    HasSubstr("rank 0: receive from rank 1 activations 8 x u8"),
                    HasSubstr("rank 1: its process is gone; last seen in backward"),
                    HasSubstr("The others wait for rank 1: the process has ended without finishing")));
}

TEST_F(FlightDoctor, ARankThatStopsInsideACallHoldsUpThoseInIt) {
  make_ranks(3);
  const std::size_t pair = rank(0).add_group("pair", {0, 1});
  const pid_t child = fork();
  if (child == 0) {
    const auto recorder = FlightRecorder::in_directory(folder_ / "flight", 1, 3);
    recorder->set_state(FlightState::kTraining);
    recorder->set_iteration(7);
    recorder->begin(recorder->add_group("pair", {0, 1}), call("amax"));
    raise(SIGSTOP);
    _exit(0);
  }
  ASSERT_EQ(waitpid(child, nullptr, WUNTRACED), child);
  rank(0).begin(pair, call("amax"));
  rank(2).begin(rank(2).add_group("other", {0, 2}), call("gradients"));
  rank(0).add_group("other", {0, 2});
  const ProgramResult result = doctor({"--stuck-after", "0"});
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(
      result.out,
      AllOf(
          HasSubstr("\n  rank 0: max amax 3 x u32, fc1, iteration 7\n  rank 1: its process is stopped (state "
                    "T); in pair call 0"),
          HasSubstr("suspect: rank 1\n"), HasSubstr("rank 2: waiting in call 0 of other (ranks 0, 2)")));
  EXPECT_THAT(result.out, Not(HasSubstr("also:")));
}

TEST_F(FlightDoctor, ADetachedRankIsSaid) {
  make_ranks(2);
  rank(1).set_state(FlightState::kDetached);
  rank(1).set_where("detached in iteration 7: no space left");
  const ProgramResult result = doctor();
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.out,
              HasSubstr("rank 1: has stopped observing (detached in iteration 7: no space left)"));
}

TEST_F(FlightDoctor, FilesThatAreMissingOrDamagedAreSaid) {
  make_ranks(3);
  std::filesystem::remove(folder_ / "flight" / "rank_1.flight");
  std::ofstream(folder_ / "flight" / "rank_2.flight") << "nonsense";
  const ProgramResult result = doctor();
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.out, AllOf(HasSubstr("there is no rank_1.flight in ./flight"),
                                HasSubstr("rank_2.flight: 8 bytes are no flight record")));
}

TEST_F(FlightDoctor, ADirectoryWithoutRecordsIsBadInput) {
  const std::map<std::string, std::string> cases = {{"nosuch", "there is no such directory"},
                                                    {".", "holds no flight records"}};
  for (const auto& [directory, expected] : cases) {
    const ProgramResult result = amaxscope({"doctor", "--flight", directory});
    EXPECT_EQ(result.status, 2);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, AllOf(HasSubstr("amaxscope: --flight " + directory), HasSubstr(expected)));
  }
  std::ofstream(folder_ / "rank_0.flight") << "nonsense";
  EXPECT_EQ(doctor().status, 2);
}

TEST_F(FlightDoctor, AsJson) {
  make_ranks(2);
  completes(0, call("a"));
  completes(1, call("b"));
  const ProgramResult result = doctor({"--json"});
  EXPECT_EQ(result.status, 1);
  const nlohmann::json json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json.at("ranks").size(), 2U);
  EXPECT_EQ(json.at("ranks")[1].at("calls")[0].at("call"), "max b 3 x u32, fc1, iteration 7");
  EXPECT_EQ(json.at("ranks")[1].at("process"), "running");
  EXPECT_EQ(json.at("findings")[0].at("call"), "call 0 of tp (ranks 0, 1)");
  EXPECT_EQ(json.at("findings")[0].at("suspects"), (std::vector<int>{0, 1}));
  EXPECT_EQ(json.at("findings")[0].at("sides")[0].at("ranks"), std::vector<int>{0});
}

TEST_F(FlightDoctor, ATrainingThatIsDoneHasNothingWrong) {
  trained(2, {"--tp", "2", "--config", "observe.yaml", "--log-dir", "logs"});
  const ProgramResult result = amaxscope({"doctor", "--flight", "logs"});
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_THAT(result.out, ::testing::ContainsRegex("1 +[^ ]+ +[0-9]+ +finished +3 +finished"));
  const FlightRecord record = read_flight_record(folder_ / "logs/flight/rank_1.flight");
  std::set<std::string> groups;
  for (const FlightGroup& group : record.status.groups) groups.insert(group.name);
  EXPECT_THAT(groups, ::testing::IsSupersetOf({"world", "tp", "dp", "tp/amax", "tp-dp-cp/statistics"}));
}

TEST_F(FlightDoctor, ARankOfAJobThatIsStoppedIsFoundFromOutside) {
  std::future<ProgramResult> job = std::async(std::launch::async, [this] {
    return amaxscope_job(
        4, small({"--tp", "2", "--steps", "100000", "--config", "observe.yaml", "--log-dir", "logs"}));
  });
  const auto status_of = [this](int number) -> std::optional<FlightStatus> {
    try {
      return read_flight_status(FlightRecorder::file_of(folder_ / "logs/flight", number));
    } catch (const Error&) {
      return std::nullopt;
    }
  };
  std::optional<FlightStatus> third;
  for (int i = 0; i < 2000 && (!third || third->iteration < 2); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    third = status_of(3);
  }
  ASSERT_TRUE(third && third->iteration >= 2);
  const auto pid = static_cast<pid_t>(third->pid);
  EXPECT_EQ(amaxscope({"doctor", "--flight", "logs"}).status, 0) << "a job in health";
  kill(pid, SIGSTOP);
  ProgramResult result;
  // Until someone waits for it: just after it is stopped, the others may still be busy with each other.
  for (int i = 0; i < 100 && result.out.find("first divergence") == std::string::npos; ++i) {
    result = amaxscope({"doctor", "--flight", "logs"});
  }
  kill(pid, SIGKILL);
  job.wait();
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.out, AllOf(HasSubstr("first divergence: call "), HasSubstr("suspect: rank 3\n"),
                                HasSubstr("rank 3: its process is stopped (state T); "),
                                HasSubstr("The others wait for rank 3: the process is stopped (state T)"),
                                HasSubstr("kill -CONT " + std::to_string(pid))));
  const ProgramResult after = amaxscope({"doctor", "--flight", "logs"});
  EXPECT_EQ(after.status, 1);
  EXPECT_THAT(after.out, AllOf(HasSubstr("gone"), HasSubstr("the process has ended without finishing")));
}

}  // namespace
}  // namespace amaxscope::test
