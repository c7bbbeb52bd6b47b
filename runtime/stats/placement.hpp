// Over which group a statistic is reduced, and which rank counts a tensor that several ranks hold (design
// section 4, "Which group a statistic is reduced over"). Pure functions on rank lists.
#pragma once

#include <vector>

#include "collectives/communicator.hpp"
#include "runtime/names.hpp"

namespace amaxscope {

/// How ranks relate to a tensor besides its layout over tp.
enum class TokenSplit {
  kSameEverywhere,  ///< weights, optimizer state: dp and cp ranks hold replicas
  kOwnTokens,       ///< activations and gradients: dp and cp ranks hold other tokens
  kOwnSummand,      ///< wgrad before the data-parallel reduction: only the lowest dp rank's is reported
};

struct StatPlacement {
  Communicator* group = nullptr;  ///< null: not reduced
  bool contributes = true;        ///< false: another rank's replica is counted instead
  bool leader = true;             ///< writes the record where it is wanted once
  std::vector<int> ranks;         ///< world ranks the numbers are over
};

/// The groups of this rank that matter here; null stands for "only this rank".
struct PlacementGroups {
  Communicator* world = nullptr;
  Communicator* tp = nullptr;
  Communicator* dp_cp = nullptr;
  Communicator* stage = nullptr;           ///< tp-dp-cp
  Communicator* override_group = nullptr;  ///< of set_reduction_group, for everything but weights
  bool overridden = false;
  bool count_every_replica = false;  ///< replica_counting: te
};

StatPlacement place_statistic(const PlacementGroups& groups, Layout layout, TokenSplit split);

}  // namespace amaxscope
