// What `doctor` says about the machine it runs on. Reads, never changes; no collective.
#pragma once

#include <string>
#include <vector>

namespace amaxscope::launch {

struct MachineReport {
  std::vector<std::vector<std::string>> rows;  ///< {what, what there is}
  std::vector<std::string> notes;              ///< what may get in the way, and what to do about it
};

/// `job` is what MPI says of itself and of the ranks: the row "MPI".
MachineReport describe_machine(const std::string& job);

}  // namespace amaxscope::launch
