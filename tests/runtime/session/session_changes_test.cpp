// A config in the place of another, dumps around events, signals: threads as ranks.
#include <gtest/gtest.h>

#include "collectives/loopback_communicator.hpp"
#include "tests/runtime/session/change_scenes.hpp"

namespace amaxscope::testing {
namespace {

class SessionChanges : public ::testing::TestWithParam<int> {};

TEST_P(SessionChanges, DumpsEverywhereAtTheIterationAfter) {
  run_loopback_ranks(GetParam(), scene_dumps_everywhere_at_the_iteration_after);
}
TEST_P(SessionChanges, WhatLedToItIsOnDisk) {
  run_loopback_ranks(GetParam(), scene_what_led_to_it_is_on_disk);
}
TEST_P(SessionChanges, AReplacedConfigIsInForceEverywhere) {
  run_loopback_ranks(GetParam(), scene_a_replaced_config_is_in_force_everywhere);
}
TEST_P(SessionChanges, WhatNothingMatchedBeforeBecomesActive) {
  run_loopback_ranks(GetParam(), scene_what_nothing_matched_before_becomes_active);
}
TEST_P(SessionChanges, TwoChangesInARow) { run_loopback_ranks(GetParam(), scene_two_changes_in_a_row); }
TEST_P(SessionChanges, EverythingIsTakenAway) {
  run_loopback_ranks(GetParam(), scene_everything_is_taken_away);
}
TEST_P(SessionChanges, AConfigThatIsNotValidChangesNothing) {
  run_loopback_ranks(GetParam(), scene_a_config_that_is_not_valid_changes_nothing);
}
TEST_P(SessionChanges, AConfigThatALayerRefusesChangesNothing) {
  run_loopback_ranks(GetParam(), scene_a_config_that_a_layer_refuses_changes_nothing);
}
TEST_P(SessionChanges, AFeatureGoesOnWithWhatItLearned) {
  run_loopback_ranks(GetParam(), scene_a_feature_goes_on_with_what_it_learned);
}
TEST_P(SessionChanges, AnEditedFileIsNoticed) {
  run_loopback_ranks(GetParam(), scene_an_edited_file_is_noticed);
}
TEST_P(SessionChanges, ASignalWritesTheState) {
  run_loopback_ranks(GetParam(), scene_a_signal_writes_the_state);
}

INSTANTIATE_TEST_SUITE_P(Ranks, SessionChanges, ::testing::Values(1, 2, 4));

}  // namespace
}  // namespace amaxscope::testing
