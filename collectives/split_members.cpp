#include "collectives/split_members.hpp"

#include <algorithm>
#include <cstddef>

namespace amaxscope {

std::vector<int> split_members(std::span<const SplitChoice> choices, int color) {
  std::vector<int> members;
  for (std::size_t rank = 0; rank < choices.size(); ++rank) {
    if (choices[rank].color == color) members.push_back(static_cast<int>(rank));
  }
  std::ranges::stable_sort(members, {},
                           [&](int rank) { return choices[static_cast<std::size_t>(rank)].key; });
  return members;
}

std::vector<int> of_members(const std::vector<int>& what, std::span<const int> members) {
  std::vector<int> result;
  for (const int rank : members) result.push_back(what[static_cast<std::size_t>(rank)]);
  return result;
}

}  // namespace amaxscope
