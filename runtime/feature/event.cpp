#include "runtime/feature/event.hpp"

namespace amaxscope {

std::string_view to_string(EventAction action) noexcept {
  switch (action) {
    case EventAction::kNone:
      return "log";
    case EventAction::kRecord:
      return "record";
    case EventAction::kDump:
      return "dump";
    case EventAction::kStop:
      return "stop";
  }
  return "unknown";
}

std::optional<EventAction> parse_event_action(std::string_view text) noexcept {
  for (const EventAction action :
       {EventAction::kNone, EventAction::kRecord, EventAction::kDump, EventAction::kStop}) {
    if (to_string(action) == text) return action;
  }
  return std::nullopt;
}

}  // namespace amaxscope
