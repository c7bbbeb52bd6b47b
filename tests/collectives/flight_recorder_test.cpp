// What a rank writes down is what others read, whatever happens to the rank or to the file.
#include "collectives/flight_recorder.hpp"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <numeric>
#include <random>
#include <sstream>
#include <thread>

#include "collectives/flight_layout.hpp"
#include "collectives/flight_process.hpp"
#include "collectives/flight_reader.hpp"
#include "core/error.hpp"
#include "tests/support/temporary_folder.hpp"

namespace amaxscope::testing {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::system_clock;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Goes on by a millisecond whenever somebody looks.
class SteppingClock final : public Clock {
 public:
  [[nodiscard]] system_clock::time_point now() const override {
    return system_clock::time_point(milliseconds(1000 + ticks_++));
  }

 private:
  mutable int ticks_ = 0;
};

class Flight : public ::testing::Test {
 protected:
  [[nodiscard]] fs::path file(int rank = 0) const { return FlightRecorder::file_of(folder_, rank); }
  [[nodiscard]] std::string bytes() const {
    std::ifstream stream(file(), std::ios::binary);
    std::ostringstream text;
    text << stream.rdbuf();
    return text.str();
  }
  void write(const std::string& content) const {
    std::ofstream(file(), std::ios::binary | std::ios::trunc) << content;
  }
  [[nodiscard]] std::string refusal() const {
    try {
      static_cast<void>(read_flight_record(file()));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInput);
      return error.what();
    }
    return "";
  }
  /// Runs in a process of its own, which never returns from it.
  template <class F>
  static pid_t child(F body) {
    const pid_t pid = fork();
    if (pid == 0) {
      body();
      _exit(0);
    }
    return pid;
  }
  template <class F>
  static bool soon(F condition) {
    for (int i = 0; i < 5000 && !condition(); ++i) std::this_thread::sleep_for(milliseconds(2));
    return condition();
  }

  const TemporaryFolder temporary_;
  fs::path folder_ = temporary_.path();
};

constexpr CollectiveTag kAmax = {Traffic::kRecipe, "amax", "decoder.layers.1.mlp.linear_fc1", "weight"};

TEST_F(Flight, EverythingThatIsRecordedIsRead) {
  const auto recorder =
      FlightRecorder::in_directory(folder_ / "new", 2, 4, {.clock = std::make_shared<SteppingClock>()});
  const std::size_t world = recorder->add_group("world", {0, 1, 2, 3});
  const std::size_t pair = recorder->add_group("tp", {2, 3});
  recorder->set_state(FlightState::kTraining);
  recorder->set_iteration(7);
  recorder->set_where("amax of", "decoder.layers.1.mlp.linear_fc1", "weight");
  const auto first = recorder->begin(pair, {.operation = FlightOperation::kAllReduce,
                                            .tag = kAmax,
                                            .count = 3,
                                            .dtype = DType::kU32,
                                            .op = ReduceOp::kMax});
  recorder->end(first, FlightOutcome::kCompleted);
  const auto second = recorder->begin(
      world,
      {.operation = FlightOperation::kBroadcast, .tag = {.what = "config"}, .world_peer = 0, .iteration = 9});
  EXPECT_EQ(first.sequence, 0U);
  EXPECT_EQ(second.sequence, 0U);

  const FlightRecord read = read_flight_record(FlightRecorder::file_of(folder_ / "new", 2));
  const FlightStatus& status = read.status;
  EXPECT_EQ(status.world_rank, 2);
  EXPECT_EQ(status.world_size, 4);
  EXPECT_EQ(status.pid, static_cast<std::uint64_t>(getpid()));
  EXPECT_EQ(process_state(status), ProcessState::kRunning);
  EXPECT_EQ(status.state, FlightState::kTraining);
  EXPECT_EQ(status.iteration, 7);
  EXPECT_EQ(status.where, "amax of decoder.layers.1.mlp.linear_fc1 weight");
  ASSERT_EQ(status.groups.size(), 2U);
  EXPECT_EQ(status.groups[1].name, "tp");
  EXPECT_THAT(status.groups[1].world_ranks, ElementsAre(2, 3));
  EXPECT_EQ(status.groups[1].calls, 1U);
  EXPECT_EQ(status.groups[1].left_at, std::nullopt);
  ASSERT_TRUE(status.inside);
  EXPECT_EQ(status.inside->group, world);
  EXPECT_EQ(status.inside->sequence, 0U);
  ASSERT_EQ(read.calls.size(), 2U);
  EXPECT_EQ(describe(read.calls[0]), "max amax 3 x u32, decoder.layers.1.mlp.linear_fc1 weight, iteration 7");
  EXPECT_EQ(read.calls[0].traffic, Traffic::kRecipe);
  EXPECT_EQ(read.calls[0].outcome, FlightOutcome::kCompleted);
  EXPECT_EQ(read.calls[0].end.value() - read.calls[0].begin, milliseconds(1));
  EXPECT_EQ(describe(read.calls[1]), "broadcast from rank 0 config 0 x u8, iteration 9");
  EXPECT_EQ(read.calls[1].outcome, FlightOutcome::kRunning);
  EXPECT_EQ(read.calls[1].end, std::nullopt);
  // Stamps: creation, state, iteration, where, begin, end, begin.
  EXPECT_EQ(read.calls[1].begin, system_clock::time_point(milliseconds(1006)));
  EXPECT_EQ(status.updated, system_clock::time_point(milliseconds(1006)));
  EXPECT_EQ(status.progress, 7U);
}

TEST_F(Flight, TheLastEntriesStay) {
  const auto recorder = FlightRecorder::in_directory(folder_, 0, 1, {.entries = 3});
  const std::size_t group = recorder->add_group("tp", {0});
  for (int i = 0; i < 5; ++i) {
    recorder->set_iteration(i);
    recorder->end(recorder->begin(group, {.tag = kAmax}), FlightOutcome::kCompleted);
  }
  for (const FlightRecord& record : {read_flight_record(file()), recorder->record()}) {
    std::vector<std::uint64_t> sequences;
    for (const FlightCall& call : record.calls) sequences.push_back(call.sequence);
    EXPECT_THAT(sequences, ElementsAre(2, 3, 4));
    EXPECT_EQ(record.calls.back().iteration, 4);
  }
}

TEST_F(Flight, AnEndThatComesAfterItsEntryIsGoneChangesNoOther) {
  const auto recorder = FlightRecorder::in_memory(0, 1, {.entries = 2});
  const std::size_t group = recorder->add_group("tp", {0});
  const auto early = recorder->begin(group, {.tag = kAmax});
  for (int i = 0; i < 2; ++i) recorder->begin(group, {.tag = kAmax});
  recorder->end(early, FlightOutcome::kFailed);
  for (const FlightCall& call : recorder->record().calls) EXPECT_EQ(call.outcome, FlightOutcome::kRunning);
}

TEST_F(Flight, LongNamesKeepTheirEnd) {
  const auto recorder = FlightRecorder::in_memory(0, 1, {});
  const std::size_t group = recorder->add_group(std::string(100, 'g') + "tp", {0});
  const std::string layer = std::string(200, 'x') + ".mlp.linear_fc1";
  recorder->begin(group, {.tag = {.what = "amax", .layer = layer}});
  recorder->set_where("amax of", std::string(500, 'y'));
  const FlightRecord record = recorder->record();
  EXPECT_EQ(record.calls[0].layer, layer.substr(layer.size() - 95));
  EXPECT_THAT(record.status.groups[0].name, ::testing::EndsWith("gtp"));
  EXPECT_EQ(record.status.where, "amax of " + std::string(151, 'y'));
}

TEST_F(Flight, GroupsOfAnyShapeReadBack) {
  const auto recorder = FlightRecorder::in_directory(folder_, 5, 4096);
  std::vector<int> all(4096);
  std::iota(all.begin(), all.end(), 0);
  std::vector<int> every_eighth;
  for (int rank = 5; rank < 4096; rank += 8) every_eighth.push_back(rank);
  const std::vector<std::vector<int>> groups = {all, every_eighth, {5}, {7, 5, 3}, {0, 1, 5, 6, 9, 10, 11}};
  for (const auto& ranks : groups) recorder->add_group("some", ranks);
  recorder->add_group("some", {5});
  recorder->add_group("some", {5});
  const FlightStatus status = read_flight_status(file(5));
  ASSERT_EQ(status.groups.size(), groups.size() + 2);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    EXPECT_EQ(status.groups[i].world_ranks, groups[i]) << i;
    EXPECT_EQ(status.groups[i].name, "some");
  }
  EXPECT_EQ(status.groups[5].name, "some#2") << "the same name and members again";
  EXPECT_EQ(status.groups[6].name, "some#3");
}

TEST_F(Flight, MoreGroupsThanThereIsRoomForShareTheLast) {
  const auto recorder = FlightRecorder::in_memory(0, 1000, {});
  std::size_t last = 0;
  for (int i = 0; i < 300; ++i) last = recorder->add_group("pair", {0, i + 1});
  EXPECT_EQ(last, kFlightGroups - 1);
  recorder->begin(last, {.tag = kAmax});
  const FlightRecord record = recorder->record();
  EXPECT_EQ(record.status.groups.size(), kFlightGroups);
  EXPECT_TRUE(record.status.groups.back().world_ranks.empty());
  EXPECT_EQ(record.calls.at(0).group, last);
}

TEST_F(Flight, LeavingAGroupIsSeen) {
  const auto recorder = FlightRecorder::in_memory(0, 2, {});
  const std::size_t one = recorder->add_group("one", {0, 1});
  const std::size_t other = recorder->add_group("other", {0, 1});
  recorder->end(recorder->begin(one, {.tag = kAmax}), FlightOutcome::kCompleted);
  recorder->leave(one);
  recorder->leave(one, 0);  // too late to change anything
  const auto broken = recorder->begin(other, {.tag = kAmax});
  recorder->leave(other, broken.sequence);
  EXPECT_EQ(recorder->status().groups[one].left_at, 1U);
  EXPECT_EQ(recorder->status().groups[other].left_at, 0U);
}

TEST_F(Flight, SurvivesAKilledProcess) {
  const pid_t pid = child([this] {
    const auto recorder = FlightRecorder::in_directory(folder_, 0, 1);
    const std::size_t group = recorder->add_group("tp", {0});
    recorder->set_state(FlightState::kTraining);
    recorder->begin(group, {.tag = kAmax});
    raise(SIGKILL);
  });
  ASSERT_EQ(waitpid(pid, nullptr, 0), pid);
  const FlightRecord record = read_flight_record(file());
  EXPECT_EQ(record.status.state, FlightState::kTraining);
  ASSERT_EQ(record.calls.size(), 1U);
  EXPECT_EQ(record.calls[0].layer, kAmax.layer);
  EXPECT_EQ(process_state(record.status), ProcessState::kGone);
}

TEST_F(Flight, AStoppedProcessAndAReusedPidAreTold) {
  const pid_t pid = child([this] {
    const auto recorder = FlightRecorder::in_directory(folder_, 0, 1);
    for (;;) pause();
  });
  ASSERT_TRUE(soon([this] { return fs::exists(file()); }));
  FlightStatus status = read_flight_status(file());
  EXPECT_EQ(process_state(status), ProcessState::kRunning);
  kill(pid, SIGSTOP);
  EXPECT_TRUE(soon([&] { return process_state(status) == ProcessState::kStopped; }));
  status.process_start += 1;  // a later process of this pid
  EXPECT_EQ(process_state(status), ProcessState::kGone);
  status.machine = "another";
  EXPECT_EQ(process_state(status), ProcessState::kUnknown);
  kill(pid, SIGKILL);
  ASSERT_EQ(waitpid(pid, nullptr, 0), pid);
}

TEST_F(Flight, WhatIsReadWhileItIsWrittenIsWhole) {
  const pid_t pid = child([this] {
    const auto recorder = FlightRecorder::in_directory(folder_, 0, 1, {.entries = 4});
    const std::size_t group = recorder->add_group("tp", {0});
    for (std::uint64_t i = 0;; ++i) {
      const std::string name(i % 90 + 1, static_cast<char>('a' + i % 26));
      recorder->set_where(name);
      recorder->end(
          recorder->begin(group, {.tag = {.what = "amax", .layer = name, .tensor = name.substr(0, 1)},
                                  .count = i,
                                  .iteration = static_cast<std::int64_t>(i)}),
          FlightOutcome::kCompleted);
    }
  });
  ASSERT_TRUE(soon([this] { return fs::exists(file()); }));
  std::uint64_t seen = 0;
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  for (int reads = 0; reads < 1000 || seen <= 100; ++reads) {
    ASSERT_LT(std::chrono::steady_clock::now(), patience) << "no whole entry is ever seen";
    const FlightRecord record = read_flight_record(file());
    for (const FlightCall& call : record.calls) {
      ++seen;
      const std::string name(call.number % 90 + 1, static_cast<char>('a' + call.number % 26));
      ASSERT_EQ(call.layer, name);
      ASSERT_EQ(call.tensor, name.substr(0, 1));
      ASSERT_EQ(call.count, call.number);
      ASSERT_EQ(call.sequence, call.number);
      ASSERT_EQ(call.iteration, static_cast<std::int64_t>(call.number));
    }
    const std::string& where = record.status.where;
    ASSERT_EQ(where, std::string(where.size(), where.empty() ? 0 : where[0]));
  }
  kill(pid, SIGKILL);
  ASSERT_EQ(waitpid(pid, nullptr, 0), pid);
}

TEST_F(Flight, AnEntryThatIsHalfWrittenIsLeftOut) {
  const auto recorder = FlightRecorder::in_directory(folder_, 0, 1, {.entries = 2});
  const std::size_t group = recorder->add_group("tp", {0});
  recorder->begin(group, {.tag = kAmax});
  recorder->begin(group, {.tag = kAmax});
  std::string half = bytes();
  const std::size_t begun = kFlightStatusBytes + sizeof(FlightSlot) - 8;
  half[begun] = 3;  // the first slot is being used again
  write(half);
  const FlightRecord record = read_flight_record(file());
  ASSERT_EQ(record.calls.size(), 1U);
  EXPECT_EQ(record.calls[0].number, 1U);
}

TEST_F(Flight, WhatIsNoFlightRecordIsRefused) {
  EXPECT_THAT(refusal(), HasSubstr("rank_0.flight: cannot be read: No such file or directory"));
  fs::create_directory(file());
  EXPECT_THAT(refusal(), HasSubstr("is not a file"));
  fs::remove(file());
  for (const std::string& content : {std::string(), std::string("hello"), std::string(100'000, 'x')}) {
    write(content);
    EXPECT_THAT(refusal(), HasSubstr("no flight record"));
  }
  { FlightRecorder::in_directory(folder_, 0, 1); }
  const std::string sound = bytes();
  EXPECT_EQ(refusal(), "");
  write(sound.substr(0, sound.size() - 1));
  EXPECT_THAT(refusal(), HasSubstr("do not hold 256 entries"));
  std::string later = sound;
  later[8] = 9;
  write(later);
  EXPECT_THAT(refusal(), HasSubstr("version 9; this program reads version 1"));
}

TEST_F(Flight, DamageIsAnErrorAndNeverACrash) {
  {
    const auto recorder = FlightRecorder::in_directory(folder_, 0, 8, {.entries = 4});
    for (int i = 1; i < 5; ++i) {
      const std::size_t group = recorder->add_group("tp", {0, i});
      recorder->begin(group, {.tag = kAmax, .count = 3});
    }
  }
  const std::string sound = bytes();
  std::mt19937 random(1);
  int refused = 0;
  for (int round = 0; round < 1000; ++round) {
    std::string damaged = sound;
    // Where there is something: header and groups, the runs, or the entries.
    const std::size_t parts[] = {0, kFlightRunsOffset, kFlightStatusBytes};
    const std::size_t spans[] = {kFlightGroupsOffset + 4 * sizeof(FlightGroupSlot), 48,
                                 4 * sizeof(FlightSlot)};
    const std::size_t part = round % 3U;
    for (int change = 0; change < 1 + round % 20; ++change) {
      damaged[parts[part] + random() % spans[part]] = static_cast<char>(random());
    }
    write(damaged);
    if (!refusal().empty()) ++refused;
  }
  EXPECT_GT(refused, 250);
  EXPECT_LT(refused, 1000);
}

TEST_F(Flight, ANewRunReplacesTheFileAndLeavesTheOldOneItsOwn) {
  const auto before = FlightRecorder::in_directory(folder_, 0, 1);
  before->set_where("before");
  const auto after = FlightRecorder::in_directory(folder_, 0, 1);
  after->set_where("after");
  before->set_where("too late");
  EXPECT_EQ(read_flight_status(file()).where, "after");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(Flight, AFileThatCannotBeMadeSaysWhy) {
  std::ofstream(folder_ / "file") << "in the way";
  try {
    FlightRecorder::in_directory(folder_ / "file" / "flight", 0, 1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_THAT(error.what(), HasSubstr("file/flight: cannot be made"));
  }
}

}  // namespace
}  // namespace amaxscope::testing
