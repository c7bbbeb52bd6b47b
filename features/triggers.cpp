#include "features/triggers.hpp"

#include <fmt/format.h>

#include "core/error.hpp"

namespace amaxscope {

namespace {

constexpr std::string_view kAction = "action";

EventAction action_in(const FeatureParams& params) {
  return parse_event_action(params.get_string(kAction, to_string(EventAction::kNone))).value();
}

}  // namespace

KeySchema action_key(const std::string& doc) {
  return {.name = std::string(kAction),
          .type = KeyType::kString,
          .default_text = std::string(to_string(EventAction::kNone)),
          .doc = doc +
                 ": log says so. record: all ranks also write down what led to it (events/). dump: and their "
                 "tensors, at the iteration after. stop: and the run ends after that step. All but log cost "
                 "an 8-byte all-reduce a step.",
          .allowed = {"log", "record", "dump", "stop"},
          .addition = true};
}

EventAction action_of(const Feature& feature) {
  const FeatureConfig& config = feature.config();
  const EventAction action = action_in(config.outer);
  for (const auto& [key, params] : config.selected) {
    AMAXSCOPE_CHECK(action_in(params) == action, ErrorCode::kConfig,
                    "{}: {} is for all tensors together and cannot be set for one of them", feature.label(),
                    kAction);
  }
  return action;
}

}  // namespace amaxscope
