// A rank that waits says where the others are, gives up when there is nothing to wait for, and waits for
// whoever gets on. On every backend that can wait without blocking.
#include <gmock/gmock.h>

#include <chrono>
#include <functional>
#include <thread>

#include "collectives/collective_guard.hpp"
#include "collectives/exchange.hpp"
#include "core/error.hpp"
#include "tests/collectives/backend.hpp"
#include "tests/collectives/flight_folder.hpp"

namespace amaxscope::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr CollectiveTag kAmax = {.what = "amax", .layer = "fc1", .tensor = "weight"};

class RollCallOf : public BackendTest {
 protected:
  struct Rank {
    Communicator& world;
    Communicator& group;
    FlightRecorder& flight;
    bool last;
  };
  /// body(rank) with a group that is recorded, under the name "debug", into a directory that all ranks share.
  static void recorded(Communicator& world, const std::function<void(Rank&)>& body) {
    const FlightFolder folder(world);
    const auto recorder = FlightRecorder::in_directory(folder.path(), world.rank(), world.size());
    const auto group = world.split(0, world.rank(), kTestTag);
    group->record_into(recorder, "debug");
    recorder->set_iteration(4);
    world.barrier(kTestTag);  // every file is there
    Rank rank{world, *group, *recorder, world.rank() == world.size() - 1};
    body(rank);
    world.barrier(kTestTag);
  }
  static Error error_of(CollectiveGuard& guard, const CollectiveTag& tag = kAmax) {
    std::vector<std::uint32_t> payload(60);
    try {
      guard.reduce_max(payload, 3, tag);
    } catch (const Error& error) {
      return error;
    }
    return {ErrorCode::kInternal, "nothing was thrown"};
  }
  [[nodiscard]] std::string all_but_last() const {
    if (ranks() == 2) return "rank 0";
    return ranks() == 3 ? "ranks 0, 1" : fmt::format("ranks 0-{}", ranks() - 2);
  }
};

// As on machines with a log directory each.
TEST_P(RollCallOf, RanksThatShareNoFilesAskEachOtherByMessage) {
  on_ranks([&](Communicator& world) {
    const FlightFolder folder(world);
    const std::filesystem::path own = folder.path() / std::to_string(world.rank());
    std::filesystem::create_directories(own);
    const auto group = world.split(0, world.rank(), kTestTag);
    group->record_into(FlightRecorder::in_directory(own, world.rank(), world.size()), "debug");
    world.barrier(kTestTag);
    if (world.rank() != world.size() - 1) {
      CollectiveGuard guard(*group, {.deadline = milliseconds(400), .look_every = milliseconds(20)});
      const std::string error = error_of(guard).what();
      if (group->side_channel() != nullptr) {
        EXPECT_THAT(error,
                    AllOf(HasSubstr("\n  arrived: " + all_but_last() + "\n"),
                          HasSubstr(fmt::format("\n  rank {}: has not answered by message, so it waits in no "
                                                "collective of this group; not known: ",
                                                world.size() - 1))));
      } else {
        EXPECT_THAT(error, AllOf(HasSubstr(fmt::format("\n  arrived: rank {}\n", world.rank())),
                                 HasSubstr(fmt::format("\n  rank {}: not known: ", world.size() - 1))));
      }
    }
    world.barrier(kTestTag);
  });
}

TEST_P(RollCallOf, AtTheDeadlineEachRankIsSomewhere) {
  on_ranks([&](Communicator& world) {
    recorded(world, [&](Rank& self) {
      CollectiveGuard guard(self.group, {.deadline = milliseconds(400), .look_every = milliseconds(20)});
      guard.set_iteration(4);
      std::vector<double> sums(2);
      guard.reduce_sum(sums, {.what = "moments"});
      if (self.last) {
        self.flight.set_where("writing a checkpoint");
      } else {
        const Error error = error_of(guard);
        EXPECT_EQ(error.code(), ErrorCode::kDeadline);
        EXPECT_THAT(
            error.what(),
            // The ranks come to their deadlines one after the other.
            AllOf(::testing::AnyOf(HasSubstr("gave up: none of the missing ranks got on for 400 ms"),
                                   HasSubstr("has given this collective up")),
                  HasSubstr("\n  arrived: " + all_but_last() + "\n"),
                  HasSubstr(fmt::format("\n  rank {}: last seen in writing a checkpoint, iteration 4, ",
                                        world.size() - 1)),
                  HasSubstr("\n    debug call 0: sum moments 2 x f64, iteration 4 - completed\n"),
                  HasSubstr("\n  debug call 1: max amax 3 x u32, fc1 weight, iteration 4 - failed")));
      }
    });
  });
}

TEST_P(RollCallOf, WhoHasLeftIsNotWaitedFor) {
  on_ranks([&](Communicator& world) {
    recorded(world, [&](Rank& self) {
      CollectiveGuard guard(self.group, {.deadline = seconds(15), .look_every = milliseconds(20)});
      if (self.last) {
        std::this_thread::sleep_for(milliseconds(100));
        self.flight.set_state(FlightState::kDetached);
        self.flight.set_where("detached at iteration 4: disk full");
        guard.leave();
      } else {
        const Error error = error_of(guard);
        EXPECT_EQ(error.code(), ErrorCode::kDeadline);
        EXPECT_THAT(error.what(),
                    HasSubstr(fmt::format("gave up: rank {} takes no more part in the traffic of "
                                          "debug (detached at iteration 4: disk full)",
                                          world.size() - 1)));
        EXPECT_TRUE(guard.broken());
      }
    });
  });
}

TEST_P(RollCallOf, WhoGetsOnIsWaitedFor) {
  on_ranks([&](Communicator& world) {
    recorded(world, [&](Rank& self) {
      CollectiveGuard guard(self.group, {.deadline = milliseconds(800), .look_every = milliseconds(20)});
      std::vector<std::uint32_t> payload = {static_cast<std::uint32_t>(world.rank())};
      if (self.last) {
        for (int file = 0; file < 90; ++file) {
          self.flight.set_where("writing a checkpoint");
          std::this_thread::sleep_for(milliseconds(20));
        }
      }
      guard.reduce_max(payload, 1, kAmax);
      EXPECT_EQ(payload[0], static_cast<std::uint32_t>(world.size() - 1));
    });
  });
}

TEST_P(RollCallOf, RanksThatWaitForEachOtherAreToldApart) {
  on_ranks([&](Communicator& world) {
    recorded(world, [&](Rank& self) {
      const auto other = world.split(0, world.rank(), kTestTag);
      other->record_into(self.group.flight(), "other");
      world.barrier(kTestTag);
      CollectiveGuard guard(self.last ? *other : self.group,
                            {.deadline = seconds(15), .look_every = milliseconds(20)});
      const Error error = error_of(guard);
      // What a session does that gives up.
      self.flight.leave(other->flight_group());
      self.flight.leave(self.group.flight_group());
      EXPECT_EQ(error.code(), ErrorCode::kDeadline);
      // The first to see it says so; whoever looks later may find that one gone from its group already.
      EXPECT_THAT(error.what(),
                  ::testing::AnyOf(HasSubstr("waits for this rank in"), HasSubstr("takes no more part"),
                                   HasSubstr("has given this collective up")));
      if (!self.last) {
        EXPECT_THAT(error.what(), HasSubstr("  arrived: " + all_but_last()));
        EXPECT_THAT(error.what(), HasSubstr(fmt::format("\n  rank {}: ", world.size() - 1)));
      }
    });
  });
}

TEST_P(RollCallOf, AFileThatCannotBeReadIsSaidAndBreaksNothing) {
  on_ranks([&](Communicator& world) {
    recorded(world, [&](Rank& self) {
      CollectiveGuard guard(self.group, {.deadline = milliseconds(300), .look_every = milliseconds(20)});
      if (self.last) {
        std::filesystem::remove(FlightRecorder::file_of(self.flight.directory(), world.rank()));
      } else {
        EXPECT_THAT(
            error_of(guard).what(),
            AllOf(::testing::AnyOf(HasSubstr("got on for 300 ms"), HasSubstr("has given this collective up")),
                  HasSubstr(fmt::format("\n  rank {}: ", world.size() - 1)), HasSubstr("not known: "),
                  HasSubstr("cannot be read: No such file or directory")));
      }
    });
  });
}

TEST_P(RollCallOf, AFileOfAnEarlierRunIsNotBelieved) {
  on_ranks([&](Communicator& world) {
    const FlightFolder folder(world);
    const bool last = world.rank() == world.size() - 1;
    const auto group = world.split(0, world.rank(), kTestTag);
    if (last) {  // the last rank of the run before
      const auto before = FlightRecorder::in_directory(folder.path(), world.rank(), world.size());
      before->set_state(FlightState::kFinished);
      before->leave(before->add_group("debug", group->world_ranks()), 0);
    }
    world.barrier(kTestTag);
    std::this_thread::sleep_for(milliseconds(2));
    if (!last) {
      const auto recorder = FlightRecorder::in_directory(folder.path(), world.rank(), world.size());
      group->record_into(recorder, "debug");
    }
    CollectiveGuard guard(*group, {.deadline = seconds(60), .look_every = milliseconds(10)});
    if (last) std::this_thread::sleep_for(milliseconds(200));
    std::vector<std::uint32_t> payload = {1};
    guard.reduce_max(payload, 1, kAmax);
    EXPECT_FALSE(guard.broken());
    world.barrier(kTestTag);
  });
}

TEST_P(RollCallOf, ACleanRunIsSilent) {
  on_ranks([&](Communicator& world) {
    recorded(world, [&](Rank& self) {
      CollectiveGuard guard(self.group, {.deadline = seconds(60), .look_every = milliseconds(1)});
      for (int iteration = 0; iteration < 200; ++iteration) {
        guard.set_iteration(iteration);
        std::vector<std::uint32_t> max = {static_cast<std::uint32_t>(world.rank() + iteration)};
        std::vector<double> sum = {0.5};
        if (iteration % 50 == world.rank()) std::this_thread::sleep_for(milliseconds(5));
        guard.reduce_max(max, 1, kAmax);
        guard.reduce_sum(sum, kAmax);
        ASSERT_EQ(max[0], static_cast<std::uint32_t>(world.size() - 1 + iteration));
        ASSERT_EQ(sum[0], 0.5 * world.size());
      }
    });
  });
}

/// Calls of different lengths meet.
class UnequalCalls : public BackendTest {
 protected:
  /// body on each rank, with a guard over all of them whose group is recorded in files.
  void on_guards(const std::function<void(Communicator& world, CollectiveGuard&)>& body) {
    try {
      on_ranks([&](Communicator& world) {
        const FlightFolder folder(world);
        const auto recorder = FlightRecorder::in_directory(folder.path(), world.rank(), world.size());
        const auto group = world.split(0, world.rank(), kTestTag);
        group->record_into(recorder, "debug");
        world.barrier(kTestTag);
        CollectiveGuard guard(*group, {.deadline = seconds(10), .look_every = milliseconds(20)});
        body(world, guard);
        world.barrier(kTestTag);
      });
    } catch (const Error& error) {  // threads as ranks fail together
      EXPECT_THAT(error.what(), HasSubstr("ranks are in different collectives"));
    }
  }
};

/// A maximum, and a sum of as many values as given: shorter, as long as and longer than the maximum's frame.
TEST_P(UnequalCalls, EndInAReportOnEveryRank) {
  for (const std::size_t values : {3U, 23U, 24U, 100U, 20'000U}) {
    for (const bool last_sums : {true, false}) {
      on_guards([&](Communicator& world, CollectiveGuard& guard) {
        const bool sums = (world.rank() == world.size() - 1) == last_sums;
        std::string text;
        try {
          std::vector<std::uint32_t> max(60);
          std::vector<double> sum(values);
          if (sums) {
            guard.reduce_sum(sum, kAmax);
          } else {
            guard.reduce_max(max, 3, kAmax);
          }
        } catch (const Error& error) {
          text = error.what();
        }
        EXPECT_THAT(text, HasSubstr("amax")) << values << " on rank " << world.rank();
        EXPECT_THAT(text, HasSubstr("collective")) << values << " on rank " << world.rank();
        // Where ranks are threads, the first error ends all of them and takes the records away; the backend
        // has named both sides then.
        EXPECT_THAT(text, ::testing::AnyOf(HasSubstr(sums ? "max amax 3 x u32"
                                                          : "sum amax " + std::to_string(values) + " x f64"),
                                           HasSubstr(sums ? "in all_reduce max of" : "in all_reduce sum of")))
            << "what the other side does";
        EXPECT_TRUE(guard.broken());
      });
    }
  }
}

TEST_P(UnequalCalls, SumsOfAnotherCountEndInAReport) {
  for (const std::size_t more : {1U, 1000U}) {
    on_guards([&](Communicator& world, CollectiveGuard& guard) {
      std::vector<double> sum(5 + (world.rank() == world.size() - 1 ? more : 0));
      EXPECT_THROW(guard.reduce_sum(sum, kAmax), Error);
    });
  }
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(RollCallOf);
INSTANTIATE_TEST_SUITE_P(Backends, RollCallOf, ::testing::ValuesIn(backends_with(has_others_to_wait_for)),
                         backend_name);

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(UnequalCalls);
INSTANTIATE_TEST_SUITE_P(Backends, UnequalCalls, ::testing::ValuesIn(backends_with(has_others_to_wait_for)),
                         backend_name);

}  // namespace
}  // namespace amaxscope::testing
