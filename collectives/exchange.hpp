// Small host-side exchanges between ranks, and how ranks are written.
#pragma once

#include <string>
#include <vector>

#include "collectives/communicator.hpp"

namespace amaxscope {

/// Every rank's text, by rank. Two collectives. Blocks.
std::vector<std::string> all_gather_text(Communicator& group, const std::string& text,
                                         const CollectiveTag& tag);

/// Root's text on every rank. Two collectives. Blocks.
std::string broadcast_text(Communicator& group, const std::string& text, int root, const CollectiveTag& tag);

/// True on all ranks when it is true on all ranks. One collective.
bool all_agree(Communicator& group, bool mine, const CollectiveTag& tag);

/// "rank 3", "ranks 0-2, 5"; ascending.
std::string rank_list(std::vector<int> ranks);

}  // namespace amaxscope
