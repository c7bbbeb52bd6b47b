// A config in the place of another, dumps around events, signals. Each scene is the body of one rank;
// collective over the world.
#pragma once

#include "collectives/communicator.hpp"

namespace amaxscope::testing {

void scene_dumps_everywhere_at_the_iteration_after(Communicator& world);
void scene_what_led_to_it_is_on_disk(Communicator& world);
void scene_a_replaced_config_is_in_force_everywhere(Communicator& world);
void scene_what_nothing_matched_before_becomes_active(Communicator& world);
void scene_two_changes_in_a_row(Communicator& world);
void scene_everything_is_taken_away(Communicator& world);
void scene_a_config_that_is_not_valid_changes_nothing(Communicator& world);
void scene_a_config_that_a_layer_refuses_changes_nothing(Communicator& world);
void scene_a_feature_goes_on_with_what_it_learned(Communicator& world);
void scene_an_edited_file_is_noticed(Communicator& world);
void scene_a_signal_writes_the_state(Communicator& world);

}  // namespace amaxscope::testing
