// How far the clocks of the ranks are apart, as far as it can be told without trusting the network's speed.
#pragma once

#include <cstdint>

#include "collectives/communicator.hpp"

namespace amaxscope::launch {

/// A clock that was read somewhere between `before` and `after` by rank 0's: how far it is certainly ahead of
/// rank 0's (negative: behind), 0 when it may agree. Microseconds.
std::int64_t certain_offset(std::int64_t before, std::int64_t after, std::int64_t theirs) noexcept;

/// The offset of this rank's clock, in seconds: several rounds, the narrowest counts. A slow round only makes
/// it less sensitive, never wrong. Collective.
double clock_offset_seconds(Communicator& group);

}  // namespace amaxscope::launch
