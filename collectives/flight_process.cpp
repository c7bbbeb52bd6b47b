#include "collectives/flight_process.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

namespace amaxscope {

namespace {

struct ProcStat {
  char state = '?';
  std::uint64_t start = 0;
};

/// Fields 3 and 22 of /proc/PID/stat; the name in field 2 may hold anything, also parentheses and blanks.
std::optional<ProcStat> stat_of(std::uint64_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  if (!std::getline(file, text, '\0')) return std::nullopt;
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  ProcStat stat;
  std::string skipped;
  fields >> stat.state;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  fields >> stat.start;
  return fields ? std::optional(stat) : std::nullopt;
}

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// "pid:[4026531836]" -> 4026531836
std::uint64_t own_pid_namespace() {
  std::error_code error;
  const std::string link = std::filesystem::read_symlink("/proc/self/ns/pid", error).string();
  const std::size_t open = link.find('[');
  std::uint64_t number = 0;
  if (!error && open != std::string::npos) {
    std::from_chars(link.data() + open + 1, link.data() + link.size(), number);
  }
  return number;
}

}  // namespace

OwnProcess own_process() {
  OwnProcess self;
  self.pid = static_cast<std::uint64_t>(getpid());
  if (const auto stat = stat_of(self.pid)) self.start = stat->start;
  self.pid_namespace = own_pid_namespace();
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) == 0) self.host = name.data();
  self.machine = first_line("/proc/sys/kernel/random/boot_id");
  return self;
}

ProcessState process_state(const FlightStatus& status) {
  const OwnProcess self = own_process();
  const bool here = !self.machine.empty() && self.machine == status.machine && self.pid_namespace != 0 &&
                    self.pid_namespace == status.pid_namespace && status.process_start != 0;
  if (!here) return ProcessState::kUnknown;
  const std::optional<ProcStat> stat = stat_of(status.pid);
  if (!stat || stat->start != status.process_start) return ProcessState::kGone;
  switch (stat->state) {
    case 'Z':
    case 'X':
      return ProcessState::kGone;
    case 'T':
    case 't':
      return ProcessState::kStopped;
    default:
      return ProcessState::kRunning;
  }
}

std::string_view to_string(ProcessState state) noexcept {
  switch (state) {
    case ProcessState::kUnknown:
      return "not seen from here";
    case ProcessState::kRunning:
      return "running";
    case ProcessState::kStopped:
      return "stopped";
    case ProcessState::kGone:
      return "gone";
  }
  return "unknown";
}

}  // namespace amaxscope
