// How a quantizer learns the amax of the ranks that share its scale, without knowing what connects them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "collectives/communicator.hpp"

namespace amaxscope {

/// MAX of amaxes (bits as in kernels/amax.hpp) over the ranks that share a scale, in place. Empty: this
/// rank's own. May block; every rank calls it as often, an empty shard with amax 0.
using ReduceAmaxes = std::function<void(std::span<std::uint32_t>)>;

/// The recipe's reduction over a group: one integer MAX, counted as Traffic::kRecipe. Empty for null and for
/// a group of one rank. The group must outlive the result. name: of the tensor, for reports.
ReduceAmaxes reduce_amaxes_over(Communicator* group, std::string name);

}  // namespace amaxscope
