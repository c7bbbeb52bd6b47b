// How ranks tell each other of events. Pure functions.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/feature/event.hpp"

namespace amaxscope {

/// The events of one rank in at most `limit` bytes; those that do not fit are left out and counted in `what`
/// of the last one that does. Empty for no events.
std::string pack_events(std::span<const Event> events, std::size_t limit);

/// The events of all ranks, from the text of each by rank (empty: none). Those of one feature, check, layer
/// and tensor are one event, with the ranks of all and what the first of them said. In the order of the
/// ranks, so that equal texts give equal lists. Throws Error(kInternal) for a text that pack_events does not
/// write.
std::vector<Event> merge_events(std::span<const std::string> texts);

/// "NonFiniteGuard of section nan (line 4): first non-finite at iteration 7, weight of fc1, rank 1: ...".
std::string sentence(const Event& event);

}  // namespace amaxscope
