// How ranks find out that one of them has something to say.
#include "runtime/live/poll.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/loopback_communicator.hpp"
#include "core/error.hpp"

namespace amaxscope {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

CollectiveGuard::Options patient() { return {.deadline = std::chrono::seconds(20), .clock = nullptr}; }

TEST(Poll, SilenceIsOneCollectiveOfTwoWords) {
  run_loopback_ranks(3, [](Communicator& world) {
    CollectiveGuard guard(world, patient());
    Poll poll(guard);
    const Poll::Answer answer = poll.exchange("", world.rank() == 1 ? 5U : 2U, 10);
    EXPECT_THAT(answer.texts, IsEmpty());
    EXPECT_EQ(answer.number, 5U);
    EXPECT_EQ(world.counters().calls(Traffic::kDebug), 1U);
    EXPECT_EQ(world.counters().bytes(Traffic::kDebug), 4 * (kMaxSignatureWords + 2));
  });
}

TEST(Poll, EveryRankHearsEveryWord) {
  run_loopback_ranks(4, [](Communicator& world) {
    CollectiveGuard guard(world, patient());
    Poll poll(guard);
    const std::string longest(Poll::kLongestText, 'x');
    const std::string own = world.rank() == 1 ? "abcd" : world.rank() == 3 ? longest : "";
    EXPECT_THAT(poll.exchange(own, 0, 10).texts, ElementsAre("", "abcd", "", longest));
    EXPECT_EQ(world.counters().calls(Traffic::kDebug), 2U);
    EXPECT_THAT(poll.exchange(world.rank() == 0 ? "z" : "", 0, 11).texts, ElementsAre("z", "", "", ""));
  });
}

TEST(Poll, RanksInDifferentIterationsAreAnError) {
  run_loopback_ranks(2, [](Communicator& world) {
    CollectiveGuard guard(world, patient());
    Poll poll(guard);
    try {
      static_cast<void>(poll.exchange("", 0, 10 + world.rank()));
      ADD_FAILURE() << "agreed";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kMismatch);
      EXPECT_THAT(error.what(), HasSubstr("iteration 11"));
    }
  });
}

}  // namespace
}  // namespace amaxscope
