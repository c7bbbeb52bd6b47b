// How a quantizer learns the amax of the ranks that share its scale, without knowing what connects them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "collectives/communicator.hpp"

namespace amaxscope {

/// MAX of amaxes (u32, bits as in kernels/amax.hpp) over the ranks that share a scale, in place. Empty: this
/// rank's own. May block for host memory; amaxes on a device are reduced on their stream, and the host waits
/// for nothing. Every rank calls it as often, an empty shard with amax 0.
using ReduceAmaxes = std::function<void(const MutableTensorView&)>;

/// The recipe's reduction over a group: one integer MAX, counted as Traffic::kRecipe. Empty for null and for
/// a group of one rank. The group must outlive the result. name: of the tensor, for reports.
ReduceAmaxes reduce_amaxes_over(Communicator* group, std::string name);

}  // namespace amaxscope
