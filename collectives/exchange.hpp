// Small host-side exchanges between ranks, and how ranks are written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collectives/communicator.hpp"

namespace amaxscope {

/// Every rank's text, by rank. Two collectives. Blocks.
std::vector<std::string> all_gather_text(Communicator& group, const std::string& text,
                                         const CollectiveTag& tag);

/// Root's text on every rank. Two collectives. Blocks.
std::string broadcast_text(Communicator& group, const std::string& text, int root, const CollectiveTag& tag);

/// Texts that travel through a MAX of words: each rank writes into its own zeroed slot, so that the maximum
/// is the list of all. A text ends with a zero byte and holds none.
[[nodiscard]] std::size_t slot_words(std::size_t longest_text) noexcept;
/// slots: group.size() slots of equal length, all zero.
void write_slot(std::span<std::uint32_t> slots, const Communicator& group, const std::string& own);
/// By rank, from reduced slots.
[[nodiscard]] std::vector<std::string> read_slots(std::span<const std::uint32_t> slots,
                                                  const Communicator& group);

/// True on all ranks when it is true on all ranks. One collective.
bool all_agree(Communicator& group, bool mine, const CollectiveTag& tag);

/// "rank 3", "ranks 0-2, 5"; ascending.
std::string rank_list(std::vector<int> ranks);

}  // namespace amaxscope
