// Which device each rank of a job uses, and whether the launcher gave the ranks what they need. Pure
// functions over what the ranks see, so that they are tested without a device.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/device.hpp"
#include "launch/launcher.hpp"

namespace amaxscope::launch {

struct VisibleDevice {
  std::string uuid;  ///< "GPU-...": one physical device (or part of one), whatever its ordinal in a process
  std::string name;
  friend bool operator==(const VisibleDevice&, const VisibleDevice&) = default;
};

/// The ordinal is local_rank modulo the number of devices that the rank sees: right both where every rank of
/// a host sees all its devices and where each sees its own only. The CPU when it sees none.
Device device_of_rank(int local_rank, std::size_t visible_devices);

/// What one rank uses.
struct DeviceUse {
  std::string host;
  std::string device;  ///< as it is called there: "cuda:0"
  std::string uuid;    ///< empty on the CPU
};

enum class DeviceSharing { kRefused, kAllowed };

/// Throws Error(kUsage) when several ranks use one device, naming the device, all its ranks and what to do,
/// unless sharing is allowed. UUIDs are compared, over all hosts: ordinals and host names of containers mean
/// nothing.
void require_own_devices(const std::vector<DeviceUse>& by_rank, DeviceSharing sharing);

/// The local rank that the innermost launcher announced differs from MPI's: a line that says so. Empty when
/// they agree or no launcher announced one. MPI's is the one that counts.
std::string local_rank_disagreement(const EnvironmentLookup& get_environment, int local_rank);

}  // namespace amaxscope::launch
