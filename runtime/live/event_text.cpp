#include "runtime/live/event_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "runtime/feature/finding.hpp"

namespace amaxscope {

namespace {

using Json = nlohmann::json;

Json to_json(const Event& event) {
  return {event.kind,    event.iteration, static_cast<int>(event.action),
          event.feature, event.check,     event.layer,
          event.tensor,  event.ranks,     event.what};
}

Event from_json(const Json& json) {
  return {.kind = json.at(0),
          .iteration = json.at(1),
          .action = static_cast<EventAction>(json.at(2).get<int>()),
          .feature = json.at(3),
          .check = json.at(4),
          .layer = json.at(5),
          .tensor = json.at(6),
          .ranks = json.at(7),
          .what = json.at(8)};
}

std::string dumped(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

bool same_thing(const Event& a, const Event& b) {
  return a.kind == b.kind && a.feature == b.feature && a.check == b.check && a.layer == b.layer &&
         a.tensor == b.tensor;
}

}  // namespace

std::string pack_events(std::span<const Event> events, std::size_t limit) {
  if (events.empty()) return {};
  Json list = Json::array();
  for (const Event& event : events) list.push_back(to_json(event));
  std::size_t left_out = 0;
  std::string text = dumped(list);
  while (text.size() > limit) {
    if (list.size() > 1) {
      list.erase(list.size() - 1);
      ++left_out;
      list.back()[8] =
          fmt::format("{} (and {} more events on this rank)", events[list.size() - 1].what, left_out);
    } else {
      // One event that is too long by itself: its sentence is what can be shortened.
      std::string what = list.back()[8];
      AMAXSCOPE_CHECK(!what.empty(), ErrorCode::kInternal, "an event does not fit into {} bytes", limit);
      what.resize(what.size() / 2);
      list.back()[8] = what;
    }
    text = dumped(list);
  }
  return text;
}

std::vector<Event> merge_events(std::span<const std::string> texts) {
  std::vector<Event> merged;
  for (const std::string& text : texts) {
    if (text.empty()) continue;
    try {
      for (const Json& json : Json::parse(text)) {
        Event event = from_json(json);
        const auto known = std::ranges::find_if(merged, [&](const Event& e) { return same_thing(e, event); });
        if (known == merged.end()) {
          merged.push_back(std::move(event));
        } else {
          known->action = std::max(known->action, event.action);
          known->ranks.insert(known->ranks.end(), event.ranks.begin(), event.ranks.end());
        }
      }
    } catch (const Json::exception& error) {
      throw Error(ErrorCode::kInternal,
                  fmt::format("an event from another rank cannot be read: {}", error.what()));
    }
  }
  for (Event& event : merged) {
    std::ranges::sort(event.ranks);
    const auto rest = std::ranges::unique(event.ranks);
    event.ranks.erase(rest.begin(), rest.end());
  }
  return merged;
}

std::string sentence(const Event& event) {
  std::string text = event.feature.empty() ? std::string() : event.feature + ": ";
  text += fmt::format("{} at iteration {}", event.check, event.iteration);
  if (!event.tensor.empty()) text += fmt::format(", {}", event.tensor);
  if (!event.layer.empty()) text += fmt::format("{}{}", event.tensor.empty() ? ", " : " of ", event.layer);
  if (!event.ranks.empty()) text += fmt::format(", {}", ranks_text(event.ranks));
  return text + ": " + event.what;
}

}  // namespace amaxscope
