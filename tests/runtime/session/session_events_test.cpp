// What only data decides, decided by all ranks together: threads as ranks.
#include <gtest/gtest.h>

#include "collectives/loopback_communicator.hpp"
#include "tests/runtime/session/event_scenes.hpp"

namespace amaxscope::testing {
namespace {

class SessionEvents : public ::testing::TestWithParam<int> {};

TEST_P(SessionEvents, IdleSessionsDoNotPoll) {
  run_loopback_ranks(GetParam(), scene_idle_sessions_do_not_poll);
}
TEST_P(SessionEvents, OnePollInEveryPollEvery) {
  run_loopback_ranks(GetParam(), scene_one_poll_in_every_poll_every);
}
TEST_P(SessionEvents, AnEventCostsOneMoreCollective) {
  run_loopback_ranks(GetParam(), scene_an_event_costs_one_more_collective);
}
TEST_P(SessionEvents, AnEventOfOneRankIsEverybodys) {
  run_loopback_ranks(GetParam(), scene_an_event_of_one_rank_is_everybodys);
}
TEST_P(SessionEvents, AStopReachesTheOtherStage) {
  if (GetParam() == 1) GTEST_SKIP() << "one rank has one stage";
  run_loopback_ranks(GetParam(), scene_a_stop_reaches_the_other_stage);
}

INSTANTIATE_TEST_SUITE_P(Ranks, SessionEvents, ::testing::Values(1, 2, 4));

}  // namespace
}  // namespace amaxscope::testing
