// The parts of the NCCL backend that making a group and splitting one have in common. Internal to it.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "collectives/communicator.hpp"
#include "collectives/nccl/nccl_group.hpp"

namespace amaxscope {

using AbortJob = std::function<void(int status, std::string_view reason)>;

/// A communicator over a group that is ready. Throws Error(kUsage) when the number of world ranks is another.
std::unique_ptr<Communicator> nccl_communicator_over(std::shared_ptr<NcclGroup> group,
                                                     std::vector<int> world_ranks, AbortJob abort_job,
                                                     std::shared_ptr<TrafficCounters> counters);

/// The group of one color, split off `parent`, ready; null for a negative color. Collective over parent.
/// `wait_for_parent` returns when that is no longer in progress. Throws as it does, and NcclError.
std::shared_ptr<NcclGroup> split_comm(ncclComm_t parent, int color, int key, int device,
                                      const NcclGroup::Limits& limits,
                                      const std::function<void()>& wait_for_parent);

}  // namespace amaxscope
