// Where a session says it is, and what that spares the ranks that wait for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "collectives/flight_reader.hpp"
#include "core/error.hpp"
#include "tests/runtime/session/session_fixture.hpp"

namespace amaxscope::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kObserve = R"(
everything:
  enabled: true
  layers: {layer_types: [all]}
  transformer_engine:
    LogTensorStats: {enabled: true, tensors: [activation, weight], stats: [max, mean, std]}
)";
constexpr const char* kFakeQuant = R"(
fake:
  enabled: true
  layers: {layer_types: [all]}
  transformer_engine:
    FakeQuant: {enabled: true, gemms: [fprop], tensors: [activation, weight], quant_format: FP8E4M3}
)";

class SessionFlight : public ::testing::Test {
 protected:
  SessionFlight() { fs::remove_all(folder_); }
  ~SessionFlight() override { fs::remove_all(folder_); }
  [[nodiscard]] FlightRecord record_of(int rank) const {
    return read_flight_record(FlightRecorder::file_of(folder_ / "flight", rank));
  }
  [[nodiscard]] SessionRun run_of(const char* yaml,
                                  std::function<void(SessionOptions&, int)> adjust = {}) const {
    return {.ranks = 2,
            .sizes = {.tp = 2},
            .yaml = yaml,
            .adjust = [this, adjust = std::move(adjust)](SessionOptions& options, int rank) {
              options.log_dir = folder_;
              options.deadline = std::chrono::minutes(2);
              if (adjust) adjust(options, rank);
            }};
  }
  const fs::path folder_ = fs::temp_directory_path() / fmt::format("amaxscope_session_flight_{}", ::getpid());
};

void feed_weight(const LayerHandle& handle) {
  feed(handle, TensorKind::kWeight, Tensor::of<float>({1, 2}, {1, 2}));
}

std::vector<std::string> names_of_calls(const FlightRecord& record, Traffic traffic) {
  std::vector<std::string> names;
  for (const FlightCall& call : record.calls) {
    if (call.traffic == traffic) {
      names.push_back(record.status.groups[call.group].name + ": " + describe(call));
    }
  }
  return names;
}

TEST_F(SessionFlight, ItsFilesSayWhereEachRankIs) {
  run_sessions(run_of(kObserve), [&](SessionRank& self) {
    const LayerHandle handle = self.session.layer(self.layer("a.fc1"));
    EXPECT_EQ(record_of(self.world.rank()).status.state, FlightState::kStarting);
    for (int step = 0; step < 3; ++step) {
      feed_weight(handle);
      self.session.step();
    }
    const FlightRecord record = record_of(self.world.rank());
    EXPECT_EQ(record.status.state, FlightState::kTraining);
    EXPECT_EQ(record.status.iteration, 3);
    EXPECT_EQ(record.status.where, "training");
    EXPECT_THAT(
        names_of_calls(record, Traffic::kDebug),
        ::testing::Contains(::testing::MatchesRegex("statistics: max statistics [0-9]+ x u32, iteration 2")));
    for (const FlightCall& call : record.calls) EXPECT_EQ(call.outcome, FlightOutcome::kCompleted);
    self.session.close();
    EXPECT_EQ(record_of(self.world.rank()).status.state, FlightState::kFinished);
  });
}

TEST_F(SessionFlight, AnAmaxReductionIsNamedByItsLayer) {
  run_sessions(run_of(kFakeQuant), [&](SessionRank& self) {
    const LayerHandle handle = self.session.layer(self.layer("a.fc1"));
    feed_weight(handle);
    const FlightRecord record = record_of(self.world.rank());
    EXPECT_EQ(record.status.where, "training, after the amax of a.fc1 weight");
    EXPECT_THAT(names_of_calls(record, Traffic::kDebug).back(),
                AllOf(HasSubstr("amax: max "), HasSubstr("a.fc1 weight, iteration 0")));
    self.session.step();
  });
}

TEST_F(SessionFlight, ARecorderOfTheTrainersHoldsBoth) {
  const auto collected =
      run_sessions(run_of(kObserve,
                          [](SessionOptions& options, int rank) {
                            options.flight = FlightRecorder::in_directory(options.log_dir / "mine", rank, 2);
                          }),
                   [&](SessionRank& self) {
                     feed_weight(self.session.layer(self.layer("a.fc1")));
                     self.session.step();
                     self.session.close();
                     const FlightStatus status =
                         read_flight_status(FlightRecorder::file_of(folder_ / "mine", self.world.rank()));
                     EXPECT_EQ(status.iteration, 1);
                     EXPECT_EQ(status.state, FlightState::kTraining)
                         << "whether the training has finished is the trainer's to say";
                     EXPECT_FALSE(fs::exists(folder_ / "flight"));
                   });
}

TEST_F(SessionFlight, RanksThatWaitForOneThatDetachedDetachAtOnce) {
  ::testing::internal::CaptureStderr();
  run_sessions(run_of(kObserve,
                      [](SessionOptions& options, int rank) {
                        if (rank != 1) return;
                        options.extra_sinks.push_back(make_callback_sink(
                            [](const StatRecord& record) {
                              if (record.iteration == 1)
                                throw Error(ErrorCode::kInternal, "out of luck on rank 1");
                            },
                            nullptr));
                      }),
               [&](SessionRank& self) {
                 const LayerHandle handle = self.session.layer(self.layer("a.fc1"));
                 for (int step = 0; step < 4; ++step) {
                   feed_weight(handle);
                   self.session.step();
                 }
                 EXPECT_TRUE(self.session.detached());
               });
  const std::string printed = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(printed, HasSubstr("iteration 1: out of luck on rank 1"));
  EXPECT_THAT(printed,
              HasSubstr("gave up: rank 1 takes no more part in the traffic of statistics (detached in "
                        "iteration 1: out of luck on rank 1)"));
}

// cases.md case 25.
TEST_F(SessionFlight, ARankOneStepAheadOfAClosedSessionSaysBothSteps) {
  ::testing::internal::CaptureStderr();
  run_sessions(run_of(kObserve), [&](SessionRank& self) {
    const LayerHandle handle = self.session.layer(self.layer("a.fc1"));
    feed_weight(handle);
    self.session.step();
    if (self.world.rank() == 1) {
      self.session.step();
      EXPECT_TRUE(self.session.detached());
    } else {
      self.session.close();
    }
  });
  const std::string printed = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(printed,
              HasSubstr("iteration 1, and gave up: rank 0 takes no more part in the traffic of statistics "
                        "(session closed before iteration 1)"));
  EXPECT_THAT(printed, HasSubstr("Stopped observing; the training goes on untouched"));
}

TEST_F(SessionFlight, WithoutRoomForFilesItWarnsAndGoesOn) {
  fs::create_directories(folder_);
  std::ofstream(folder_ / "flight") << "a file in the way";
  ::testing::internal::CaptureStderr();
  run_sessions(run_of(kObserve), [&](SessionRank& self) {
    feed_weight(self.session.layer(self.layer("a.fc1")));
    self.session.step();
    EXPECT_FALSE(self.session.detached());
  });
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("no flight record of this rank: "));
}

}  // namespace
}  // namespace amaxscope::testing
