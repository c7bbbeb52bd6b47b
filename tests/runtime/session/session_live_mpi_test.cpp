// What ranks decide together while they run, under mpirun.
#include "tests/runtime/session/event_scenes.hpp"
#include "tests/support/mpi_test.hpp"

namespace amaxscope::testing {
namespace {

class SessionLiveMpi : public MpiTest {};

TEST_F(SessionLiveMpi, IdleSessionsDoNotPoll) { scene_idle_sessions_do_not_poll(world()); }
TEST_F(SessionLiveMpi, OnePollInEveryPollEvery) { scene_one_poll_in_every_poll_every(world()); }
TEST_F(SessionLiveMpi, AnEventCostsOneMoreCollective) { scene_an_event_costs_one_more_collective(world()); }
TEST_F(SessionLiveMpi, AnEventOfOneRankIsEverybodys) { scene_an_event_of_one_rank_is_everybodys(world()); }
TEST_F(SessionLiveMpi, AStopReachesTheOtherStage) { scene_a_stop_reaches_the_other_stage(world()); }

}  // namespace
}  // namespace amaxscope::testing
