#include "collectives/flight_record.hpp"

#include <fmt/format.h>

namespace amaxscope {

std::string_view to_string(FlightState state) noexcept {
  switch (state) {
    case FlightState::kStarting:
      return "starting";
    case FlightState::kTraining:
      return "training";
    case FlightState::kDetached:
      return "detached";
    case FlightState::kFailed:
      return "failed";
    case FlightState::kFinished:
      return "finished";
  }
  return "unknown";
}

std::string_view to_string(FlightOperation operation) noexcept {
  switch (operation) {
    case FlightOperation::kAllReduce:
      return "all_reduce";
    case FlightOperation::kAllGather:
      return "all_gather";
    case FlightOperation::kReduceScatter:
      return "reduce_scatter";
    case FlightOperation::kBroadcast:
      return "broadcast";
    case FlightOperation::kBarrier:
      return "barrier";
    case FlightOperation::kSplit:
      return "split";
    case FlightOperation::kSend:
      return "send";
    case FlightOperation::kReceive:
      return "receive";
  }
  return "unknown";
}

std::string describe(const FlightCall& call) {
  std::string text;
  switch (call.operation) {
    case FlightOperation::kAllReduce:
      text = to_string(call.op);
      break;
    case FlightOperation::kReduceScatter:
      text = fmt::format("reduce_scatter {}", to_string(call.op));
      break;
    default:
      text = to_string(call.operation);
      break;
  }
  if (call.peer >= 0) {
    text += fmt::format(" {} rank {}", call.operation == FlightOperation::kSend ? "to" : "from", call.peer);
  }
  text += fmt::format(" {}", call.what);
  if (call.operation != FlightOperation::kBarrier && call.operation != FlightOperation::kSplit) {
    text += fmt::format(" {} x {}", call.count, to_string(call.dtype));
  }
  if (!call.layer.empty()) text += fmt::format(", {}", call.layer);
  if (!call.tensor.empty()) text += fmt::format("{}{}", call.layer.empty() ? ", " : " ", call.tensor);
  return text + fmt::format(", iteration {}", call.iteration);
}

const FlightGroup* FlightStatus::find(const FlightGroup& group) const {
  for (const FlightGroup& own : groups) {
    if (own.same_as(group)) return &own;
  }
  return nullptr;
}

}  // namespace amaxscope
