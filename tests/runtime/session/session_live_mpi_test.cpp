// What ranks decide together while they run, under mpirun.
#include "tests/runtime/session/change_scenes.hpp"
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
TEST_F(SessionLiveMpi, DumpsEverywhereAtTheIterationAfter) {
  scene_dumps_everywhere_at_the_iteration_after(world());
}
TEST_F(SessionLiveMpi, WhatLedToItIsOnDisk) { scene_what_led_to_it_is_on_disk(world()); }
TEST_F(SessionLiveMpi, AReplacedConfigIsInForceEverywhere) {
  scene_a_replaced_config_is_in_force_everywhere(world());
}
TEST_F(SessionLiveMpi, WhatNothingMatchedBeforeBecomesActive) {
  scene_what_nothing_matched_before_becomes_active(world());
}
TEST_F(SessionLiveMpi, TwoChangesInARow) { scene_two_changes_in_a_row(world()); }
TEST_F(SessionLiveMpi, EverythingIsTakenAway) { scene_everything_is_taken_away(world()); }
TEST_F(SessionLiveMpi, AConfigThatIsNotValidChangesNothing) {
  scene_a_config_that_is_not_valid_changes_nothing(world());
}
TEST_F(SessionLiveMpi, AConfigThatALayerRefusesChangesNothing) {
  scene_a_config_that_a_layer_refuses_changes_nothing(world());
}
TEST_F(SessionLiveMpi, AFeatureGoesOnWithWhatItLearned) {
  scene_a_feature_goes_on_with_what_it_learned(world());
}
TEST_F(SessionLiveMpi, AnEditedFileIsNoticed) { scene_an_edited_file_is_noticed(world()); }
TEST_F(SessionLiveMpi, ASignalWritesTheState) { scene_a_signal_writes_the_state(world()); }

}  // namespace
}  // namespace amaxscope::testing
