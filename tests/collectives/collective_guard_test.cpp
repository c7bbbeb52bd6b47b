// The guard on every backend: what it finds, what it says, and that everybody goes on afterwards.
#include "collectives/collective_guard.hpp"

#include <gmock/gmock.h>

#include <array>
#include <chrono>
#include <limits>
#include <numeric>

#include "core/error.hpp"
#include "tests/collectives/backend.hpp"
#include "tests/support/faulty_communicator.hpp"

namespace amaxscope::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr CollectiveTag kAmax = {
    .what = "amax", .layer = "decoder.layers.1.mlp.linear_fc1", .tensor = "activation"};

struct Failure {
  ErrorCode code = ErrorCode::kInternal;
  std::string text;
};

/// What f throws; an empty text when nothing.
template <class F>
Failure failure_of(F f) {
  try {
    f();
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {};
}

/// "rank 0" or "ranks 0, 1" or "ranks 0-2": all but the last.
std::string all_but_last(int ranks) {
  if (ranks == 2) return "rank 0";
  return ranks == 3 ? "ranks 0, 1" : fmt::format("ranks 0-{}", ranks - 2);
}

class Guard : public BackendTest {};
class GuardDeadline : public BackendTest {};
class GuardOfTwo : public BackendTest {};

class GuardDisagreement : public BackendTest {
 protected:
  /// The last rank makes another call than the others; every rank says so.
  void expect_mismatch(const std::function<void(CollectiveGuard&, bool last)>& call,
                       const std::string& others, const std::string& last_one) const {
    on_ranks([&](Communicator& world) {
      const bool last = world.rank() == world.size() - 1;
      const auto group = world.split(0, world.rank(), kTestTag);
      CollectiveGuard guard(*group, {.deadline = std::chrono::seconds(20)});
      guard.set_iteration(7);
      const Failure failure = failure_of([&] { call(guard, last); });
      EXPECT_EQ(failure.code, ErrorCode::kMismatch);
      EXPECT_EQ(failure.text, fmt::format("ranks are in different debug collectives: {}: {}; rank {}: {}",
                                          all_but_last(world.size()), others, world.size() - 1, last_one));
      EXPECT_TRUE(guard.broken());
      std::vector<std::uint32_t> again(2);
      EXPECT_THAT(failure_of([&] { guard.reduce_max(again, 2, kAmax); }).text, HasSubstr("cannot go on"));
      // The trainer's traffic is not touched.
      Tensor io = Tensor::of<std::int32_t>({1}, {1});
      world.all_reduce(io, ReduceOp::kSum, kTestTag);
      EXPECT_EQ(io.values<std::int32_t>()[0], world.size());
    });
  }
};

TEST_P(Guard, MaximumInOneCollective) {
  on_ranks([&](Communicator& world) {
    CollectiveGuard guard(world, {});
    const auto rank = static_cast<std::uint32_t>(world.rank());
    const auto size = static_cast<std::uint32_t>(world.size());
    std::vector<std::uint32_t> payload = {rank, 100 - rank, 0xFFFFFFFFU, 0};
    for (std::uint64_t call = 1; call <= 3; ++call) {
      payload[0] = rank;
      guard.reduce_max(payload, 3, kAmax);
      EXPECT_THAT(payload, ElementsAre(size - 1, size == 1 ? 100 : payload[1], 0xFFFFFFFFU, 0U));
      EXPECT_EQ(world.counters().calls(Traffic::kDebug), size == 1 ? 0 : call);
      EXPECT_EQ(world.counters().bytes(Traffic::kDebug), size == 1 ? 0 : call * (4 + 4) * 4);
    }
    EXPECT_EQ(payload[1], 100U);
    EXPECT_FALSE(guard.broken());
  });
}

TEST_P(Guard, SumInOneCollective) {
  on_ranks([&](Communicator& world) {
    CollectiveGuard guard(world, {});
    std::vector<double> payload = {1.5, static_cast<double>(world.rank())};
    guard.reduce_sum(payload, {.traffic = Traffic::kRecipe, .what = "sums"});
    const int n = world.size();
    EXPECT_THAT(payload, ElementsAre(1.5 * n, n * (n - 1) / 2));
    EXPECT_EQ(world.counters().calls(Traffic::kRecipe), n == 1 ? 0U : 1U);
  });
}

TEST_P(Guard, AnEmptyPayloadStillAgrees) {
  on_ranks([&](Communicator& world) {
    CollectiveGuard guard(world, {});
    guard.reduce_max({}, 0, {.what = "barrier"});
    guard.reduce_sum({}, {.what = "nothing"});
    EXPECT_EQ(guard.flight().record().calls.size(), world.size() == 1 ? 0U : 2U);
  });
}

TEST_P(GuardDisagreement, AnotherLayerIsNamed) {
  expect_mismatch(
      [](CollectiveGuard& guard, bool last) {
        std::vector<std::uint32_t> payload(60);
        CollectiveTag tag = kAmax;
        if (last) tag.layer = "decoder.layers.2.mlp.linear_fc1";
        guard.reduce_max(payload, 3, tag);
      },
      "call 0: max amax 3 x u32, decoder.layers.1.mlp.linear_fc1 activation, iteration 7",
      "call 0: max amax 3 x u32, decoder.layers.2.mlp.linear_fc1 activation, iteration 7");
}

TEST_P(GuardDisagreement, AnotherCountIsNamed) {
  expect_mismatch(
      [](CollectiveGuard& guard, bool last) {
        std::vector<std::uint32_t> payload(60);
        guard.reduce_max(payload, last ? 4 : 3, {.what = "amax"});
      },
      "call 0: max amax 3 x u32, iteration 7", "call 0: max amax 4 x u32, iteration 7");
}

TEST_P(GuardDisagreement, AnotherIterationIsNamed) {
  expect_mismatch(
      [](CollectiveGuard& guard, bool last) {
        std::vector<std::uint32_t> payload(1);
        if (last) guard.set_iteration(8);
        guard.reduce_max(payload, 1, {.what = "step"});
      },
      "call 0: max step 1 x u32, iteration 7", "call 0: max step 1 x u32, iteration 8");
}

TEST_P(GuardDisagreement, ARankThatCallsOnceMoreIsFoundAtItsExtraCall) {
  expect_mismatch(
      [](CollectiveGuard& guard, bool last) {
        std::vector<std::uint32_t> payload(1);
        guard.reduce_max(payload, 1, {.what = "step"});
        if (!last) guard.set_iteration(8);  // the last rank steps twice in its iteration
        guard.reduce_max(payload, 1, {.what = "step"});
      },
      "call 1: max step 1 x u32, iteration 8", "call 1: max step 1 x u32, iteration 7");
}

TEST_P(GuardDisagreement, ASumOfAnotherTensorIsNamed) {
  expect_mismatch(
      [](CollectiveGuard& guard, bool last) {
        std::vector<double> payload(5);
        guard.reduce_sum(payload, {.what = "sums", .layer = "fc1", .tensor = last ? "weight" : "gradient"});
      },
      "call 0: sum sums 5 x f64, fc1 gradient, iteration 7",
      "call 0: sum sums 5 x f64, fc1 weight, iteration 7");
}

TEST_P(GuardDisagreement, ASumOfAnotherIterationIsNamed) {
  expect_mismatch(
      [](CollectiveGuard& guard, bool last) {
        std::vector<double> payload(5, std::numeric_limits<double>::quiet_NaN());
        if (last) guard.set_iteration(8);
        guard.reduce_sum(payload, {.what = "sums"});
      },
      "call 0: sum sums 5 x f64, iteration 7", "call 0: sum sums 5 x f64, iteration 8");
}

TEST_P(GuardDisagreement, LayersInAnotherOrderAreFoundAtTheFirst) {
  expect_mismatch(
      [](CollectiveGuard& guard, bool last) {
        std::vector<double> payload(5);
        for (const char* layer : last ? std::array{"b", "a"} : std::array{"a", "b"}) {
          guard.reduce_sum(payload, {.what = "sums", .layer = layer});
        }
      },
      "call 0: sum sums 5 x f64, a, iteration 7", "call 0: sum sums 5 x f64, b, iteration 7");
}

TEST_P(GuardDisagreement, ASkippedSumIsAMismatchOfTheNext) {
  expect_mismatch(
      [](CollectiveGuard& guard, bool last) {
        std::vector<double> payload(3);
        for (int iteration = 0; iteration < 3; ++iteration) {
          guard.set_iteration(iteration);
          if (!last || iteration != 1) guard.reduce_sum(payload, {.what = "sums"});
        }
      },
      "call 1: sum sums 3 x f64, iteration 1", "call 1: sum sums 3 x f64, iteration 2");
}

TEST_P(GuardDisagreement, AnExtraSumIsAMismatchOfTheNext) {
  expect_mismatch(
      [](CollectiveGuard& guard, bool last) {
        std::vector<double> payload(3);
        guard.reduce_sum(payload, {.what = "sums"});
        if (last) guard.reduce_sum(payload, {.what = "sums"});
        guard.reduce_sum(payload, {.what = "moments"});
      },
      "call 1: sum moments 3 x f64, iteration 7", "call 1: sum sums 3 x f64, iteration 7");
}

TEST_P(GuardDisagreement, NamesThatReadAlikeWhenJoinedAreDifferent) {
  on_ranks([&](Communicator& world) {
    const bool last = world.rank() == world.size() - 1;
    for (const char* joined : {"fc1weight", "fc1 weight"}) {
      const auto group = world.split(0, world.rank(), kTestTag);
      CollectiveGuard guard(*group, {});
      std::vector<std::uint32_t> payload(1);
      const CollectiveTag one = {.what = "amax", .layer = joined, .tensor = ""};
      const CollectiveTag other = {.what = "amax", .layer = "fc1", .tensor = "weight"};
      EXPECT_EQ(failure_of([&] { guard.reduce_max(payload, 1, last ? one : other); }).code,
                ErrorCode::kMismatch)
          << joined;
    }
  });
}

TEST_P(GuardDisagreement, ASkippedCallIsAMismatchOfTheNext) {
  on_ranks([&](Communicator& world) {
    const auto group = world.split(0, world.rank(), kTestTag);
    // The last rank's second reduction never reaches the others, who get its third instead: the same call in
    // all but its number.
    FaultyCommunicator faulty(*group, {.call = world.rank() == world.size() - 1 ? 1 : 1000});
    CollectiveGuard guard(faulty, {.deadline = std::chrono::seconds(20)});
    const Failure failure = failure_of([&] {
      for (int call = 0; call < 3; ++call) {
        std::vector<std::uint32_t> payload(1);
        guard.reduce_max(payload, 1, {.what = "amax", .layer = "fc1"});
      }
    });
    EXPECT_EQ(failure.code, ErrorCode::kMismatch);
    EXPECT_THAT(failure.text, AllOf(HasSubstr(": call 1: max amax 1 x u32, fc1"),
                                    HasSubstr(": call 2: max amax 1 x u32, fc1"), Not(HasSubstr("call 0"))));
  });
}

TEST_P(Guard, ALateRankIsWaitedFor) {
  on_ranks([&](Communicator& world) {
    FaultyCommunicator faulty(world, {.kind = CommunicatorFault::Kind::kLate,
                                      .call = world.rank() == 0 ? 0 : 1000,
                                      .delay = milliseconds(50)});
    CollectiveGuard guard(faulty, {.deadline = std::chrono::seconds(20)});
    std::vector<std::uint32_t> payload = {static_cast<std::uint32_t>(world.rank())};
    guard.reduce_max(payload, 1, kAmax);
    EXPECT_EQ(payload[0], static_cast<std::uint32_t>(world.size() - 1));
  });
}

TEST_P(GuardDeadline, ARankThatNeverComesEndsAtTheDeadline) {
  on_ranks([&](Communicator& world) {
    {
      const bool last = world.rank() == world.size() - 1;
      const auto group = world.split(0, world.rank(), kTestTag);
      CollectiveGuard guard(*group, {.deadline = milliseconds(300)});
      guard.set_iteration(4);
      std::vector<double> sums(2);
      guard.reduce_sum(sums, {.what = "moments"});
      guard.set_iteration(5);
      if (!last) {
        const auto start = std::chrono::steady_clock::now();
        std::vector<std::uint32_t> payload = {17};
        const Failure failure = failure_of([&] { guard.reduce_max(payload, 1, kAmax); });
        EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(300));
        EXPECT_EQ(failure.code, ErrorCode::kDeadline);
        const std::string where =
            group->side_channel() == nullptr
                ? "  not known: without a directory for flight records no rank can see another's\n"
                : fmt::format(
                      "  arrived: ranks? {}\n  rank {}: has not answered by message, so it waits in no "
                      "collective of this group; not known: there is no directory for flight records\n",
                      world.size() > 3 ? fmt::format("0-{}", world.size() - 2) : "0(, 1)?", world.size() - 1);
        EXPECT_THAT(
            failure.text,
            ::testing::MatchesRegex(fmt::format(
                "rank {} waited [0-9]+ ms for the others of its group .ranks {}. in debug collective "
                "call 1: max "
                "amax 1 x u32, decoder.layers.1.mlp.linear_fc1 activation, iteration 5, and gave up: "
                "none of the "
                "missing ranks got on for 300 ms\n"
                "where the ranks of its group are:\n"
                "{}"
                "its own last collectives:\n"
                "  group call 0: sum moments 2 x f64, iteration 4 - completed\n"
                "  group call 1: max amax 1 x u32, decoder.layers.1.mlp.linear_fc1 activation, "
                "iteration 5 - failed",
                world.rank(), world.size() == 2 ? "0, 1" : fmt::format("0-{}", world.size() - 1), where)));
        EXPECT_EQ(payload[0], 17U) << "untouched";
        EXPECT_TRUE(guard.broken());
        EXPECT_EQ(guard.flight().record().calls.back().outcome, FlightOutcome::kFailed);
      }
      world.barrier(kTestTag);
    }  // groups with an abandoned collective go without waiting
    Tensor io = Tensor::of<float>({1.0F}, {1});
    world.all_reduce(io, ReduceOp::kSum, kTestTag);
    EXPECT_EQ(io.values<float>()[0], static_cast<float>(world.size()));
    const auto another = world.split(0, world.rank(), kTestTag);
    CollectiveGuard guard(*another, {});
    std::vector<std::uint32_t> payload = {static_cast<std::uint32_t>(world.rank())};
    guard.reduce_max(payload, 1, kAmax);
    EXPECT_EQ(payload[0], static_cast<std::uint32_t>(world.size() - 1));
  });
}

TEST_P(GuardOfTwo, AMismatchIsReportedThoughTheOthersHaveGivenUp) {
  on_ranks([&](Communicator& world) {
    const auto group = world.split(0, world.rank(), kTestTag);
    CollectiveGuard guard(*group, {.deadline = milliseconds(200)});
    std::vector<std::uint32_t> payload(1);
    if (world.rank() == 0) {
      EXPECT_EQ(failure_of([&] { guard.reduce_max(payload, 1, kAmax); }).code, ErrorCode::kDeadline);
    }
    world.barrier(kTestTag);
    if (world.rank() == 1) {  // comes late, and to something else
      const Failure failure = failure_of([&] { guard.reduce_max(payload, 1, {.what = "step"}); });
      EXPECT_EQ(failure.code, ErrorCode::kMismatch);
      EXPECT_THAT(failure.text,
                  HasSubstr("this rank was in call 0: max step 1 x u32, iteration 0; the others did not"));
    }
    world.barrier(kTestTag);
  });
}

/// A clock that goes on by a minute whenever somebody looks.
class HastyClock final : public Clock {
 public:
  [[nodiscard]] std::chrono::steady_clock::time_point steady_now() const override {
    return now_ += std::chrono::minutes(1);
  }

 private:
  mutable std::chrono::steady_clock::time_point now_;
};

TEST_P(GuardDeadline, TheDeadlineIsTenMinutesOfItsClock) {
  on_ranks([&](Communicator& world) {
    const auto group = world.split(0, world.rank(), kTestTag);
    CollectiveGuard guard(*group, {.clock = std::make_shared<const HastyClock>()});
    if (world.rank() != 0) {
      std::vector<std::uint32_t> payload(1);
      EXPECT_THAT(failure_of([&] { guard.reduce_max(payload, 1, kAmax); }).text,
                  HasSubstr("got on for 600000 ms"));
    }
    world.barrier(kTestTag);
  });
}

TEST_P(Guard, EveryCallIsRecordedWithItsOwnIteration) {
  on_ranks([&](Communicator& world) {
    CollectiveGuard guard(world, {});
    for (int iteration = 0; iteration < 3; ++iteration) {
      guard.set_iteration(iteration);
      std::vector<std::uint32_t> payload(20);
      guard.reduce_max(payload, 2, {.what = "amax"});
    }
    const FlightRecord record = guard.flight().record();
    EXPECT_EQ(record.calls.size(), world.size() == 1 ? 0U : 3U) << "a group of one has no collectives";
    for (const FlightCall& call : record.calls) {
      EXPECT_EQ(call.outcome, FlightOutcome::kCompleted);
      EXPECT_EQ(describe(call), fmt::format("max amax 2 x u32, iteration {}", call.sequence));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Backends, Guard, ::testing::ValuesIn(backends()), backend_name);

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GuardDisagreement);
INSTANTIATE_TEST_SUITE_P(Backends, GuardDisagreement, ::testing::ValuesIn(backends_with(has_others)),
                         backend_name);

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GuardDeadline);
INSTANTIATE_TEST_SUITE_P(Backends, GuardDeadline, ::testing::ValuesIn(backends_with(has_others_to_wait_for)),
                         backend_name);

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GuardOfTwo);
INSTANTIATE_TEST_SUITE_P(Backends, GuardOfTwo, ::testing::ValuesIn(backends_with([](const Backend& backend) {
                           return has_others_to_wait_for(backend) && backend.ranks == 2;
                         })),
                         backend_name);

}  // namespace
}  // namespace amaxscope::testing
