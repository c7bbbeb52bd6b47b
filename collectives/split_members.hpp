// What a split of a group comes to, for backends that make it of everybody's choices. Pure.
#pragma once

#include <span>
#include <vector>

namespace amaxscope {

/// As Communicator::split takes it.
struct SplitChoice {
  int color = 0;
  int key = 0;
};

/// choices: by rank. The ranks of this color, ordered as the new group is: by key, then by rank.
std::vector<int> split_members(std::span<const SplitChoice> choices, int color);

/// what: by rank of the whole group. Those of the members, in their order.
std::vector<int> of_members(const std::vector<int>& what, std::span<const int> members);

}  // namespace amaxscope
