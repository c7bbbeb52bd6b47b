#include "runtime/stats/placement.hpp"

#include <algorithm>

namespace amaxscope {

namespace {

int world_rank_of(const PlacementGroups& groups) {
  for (const Communicator* group : {groups.world, groups.stage, groups.tp, groups.dp_cp}) {
    if (group != nullptr) return group->world_ranks()[static_cast<std::size_t>(group->rank())];
  }
  return 0;
}

/// Whether this rank has the lowest world rank among those of `replicas` that are in `group`.
bool is_first_of(const Communicator* replicas, const Communicator& group, int own) {
  if (replicas == nullptr) return true;
  const std::vector<int>& members = group.world_ranks();
  return std::ranges::none_of(replicas->world_ranks(), [&](int other) {
    return other < own && std::ranges::find(members, other) != members.end();
  });
}

}  // namespace

StatPlacement place_statistic(const PlacementGroups& groups, Layout layout, TokenSplit split) {
  const int own = world_rank_of(groups);
  const bool weight_like = split == TokenSplit::kSameEverywhere;
  Communicator* group = groups.stage;
  if (weight_like && groups.count_every_replica) group = groups.tp;
  if (!weight_like && groups.overridden) group = groups.override_group;

  StatPlacement placement;
  if (group == nullptr || layout == Layout::kPartial) {
    placement.ranks = {own};
    return placement;
  }
  placement.group = group;
  placement.leader = group->rank() == 0;
  placement.ranks = group->world_ranks();
  if (groups.count_every_replica) return placement;

  if (layout == Layout::kReplicated) placement.contributes = is_first_of(groups.tp, *group, own);
  if (split != TokenSplit::kOwnTokens) {
    placement.contributes = placement.contributes && is_first_of(groups.dp_cp, *group, own);
    // The leader is the lowest rank of the group, so its tp group is the one whose copy is counted.
    if (groups.tp != nullptr && placement.leader) placement.ranks = groups.tp->world_ranks();
  }
  return placement;
}

}  // namespace amaxscope
