// Whether the process behind a flight record still lives, as far as this machine can tell (/proc). Never
// blocks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "collectives/flight_record.hpp"

namespace amaxscope {

/// What identifies a process beyond its pid, which is used again.
struct OwnProcess {
  std::uint64_t pid = 0;
  std::uint64_t start = 0;          ///< clock ticks since the machine started
  std::uint64_t pid_namespace = 0;  ///< 0: unknown
  std::string host;
  std::string machine;
};
OwnProcess own_process();

enum class ProcessState : std::uint8_t {
  kUnknown,  ///< on another machine, or in another container
  kRunning,
  kStopped,  ///< by a signal or a debugger: state T
  kGone,
};
ProcessState process_state(const FlightStatus& status);
std::string_view to_string(ProcessState state) noexcept;

}  // namespace amaxscope
