// What only data decides. Each scene is the body of one rank; collective over the world.
#pragma once

#include "collectives/communicator.hpp"

namespace amaxscope::testing {

void scene_idle_sessions_do_not_poll(Communicator& world);
void scene_one_poll_in_every_poll_every(Communicator& world);
void scene_an_event_costs_one_more_collective(Communicator& world);
void scene_an_event_of_one_rank_is_everybodys(Communicator& world);
void scene_a_stop_reaches_the_other_stage(Communicator& world);

}  // namespace amaxscope::testing
