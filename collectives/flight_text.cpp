#include "collectives/flight_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>

#include "collectives/flight_process.hpp"

namespace amaxscope {

namespace {

std::string_view to_string(FlightOutcome outcome) {
  switch (outcome) {
    case FlightOutcome::kRunning:
      return "not completed";
    case FlightOutcome::kCompleted:
      return "completed";
    case FlightOutcome::kFailed:
      return "failed";
  }
  return "unknown";
}

std::string call_in_group(const FlightCall& call, const FlightStatus& status) {
  const std::string& group = status.groups[call.group].name;
  if (!is_collective(call.operation)) return fmt::format("{}: {}", group, describe(call));
  return fmt::format("{} call {}: {}", group, call.sequence, describe(call));
}

/// Clocks of two machines may differ by more than has passed.
double seconds(std::chrono::system_clock::duration duration) {
  return std::max(0.0, std::chrono::duration<double>(duration).count());
}

}  // namespace

std::string describe_in_group(const FlightCall& call, const FlightStatus& status) {
  return fmt::format("{} - {}", call_in_group(call, status), to_string(call.outcome));
}

const FlightCall* current_call(const FlightRecord& record) {
  if (!record.status.inside) return nullptr;
  const FlightWait& wait = *record.status.inside;
  for (const FlightCall& call : std::views::reverse(record.calls)) {
    if (call.outcome == FlightOutcome::kRunning && call.group == wait.group &&
        is_collective(call.operation) != wait.world_peer.has_value() &&
        (wait.world_peer ? call.peer == *wait.world_peer : call.sequence == wait.sequence)) {
      return &call;
    }
  }
  return nullptr;
}

std::string whereabouts(const FlightRecord& record, std::chrono::system_clock::time_point now) {
  const FlightStatus& status = record.status;
  std::string text;
  const ProcessState process = process_state(status);
  const bool ended = status.state == FlightState::kFinished;
  if (process == ProcessState::kGone && !ended) text += "its process is gone; ";
  if (process == ProcessState::kStopped) text += "its process is stopped (state T); ";
  const FlightCall* call = current_call(record);
  if (status.state == FlightState::kDetached || status.state == FlightState::kFailed || ended) {
    text += to_string(status.state);
    // Why it failed matters more than what it does now.
    if (call != nullptr && !status.where.empty()) text += fmt::format(" ({})", status.where);
    text += "; ";
  }
  if (call != nullptr) {
    return text +
           fmt::format("in {}, for {:.1f} s", call_in_group(*call, status), seconds(now - call->begin));
  }
  return text + fmt::format("last seen in {}, iteration {}, {:.1f} s ago",
                            status.where.empty() ? to_string(status.state) : status.where, status.iteration,
                            seconds(now - status.updated));
}

}  // namespace amaxscope
