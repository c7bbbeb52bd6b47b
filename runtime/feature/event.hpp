// What the whole job does because of what one rank saw or was asked. Value types.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/names.hpp"
#include "runtime/stats/accumulator.hpp"

namespace amaxscope {

/// In the order of their weight.
enum class EventAction : std::uint8_t {
  kNone,    ///< "log": the rank that found it says so; no rank asks the others
  kRecord,  ///< "record": all ranks agree on the event and write down what led to it
  kDump,    ///< "dump": the same, and write their tensors to disk at the iteration after
  kStop,    ///< "stop": as record, and the run ends after that step, on all ranks
};

std::string_view to_string(EventAction action) noexcept;
std::optional<EventAction> parse_event_action(std::string_view text) noexcept;

struct Event {
  std::string kind;            ///< "trigger", "config" or "signal"
  std::int64_t iteration = 0;  ///< at which it was seen
  EventAction action = EventAction::kRecord;
  std::string feature;  ///< Feature::label(); empty: no feature
  std::string check;    ///< Finding::check
  std::string layer;
  std::string tensor;
  std::vector<int> ranks;  ///< world ranks that are concerned, ascending
  std::string what;        ///< one sentence

  friend bool operator==(const Event&, const Event&) = default;
};

/// A tensor as it went by on this rank, with what a feature remembers of it.
struct RecentTensor {
  std::int64_t iteration = 0;
  std::string layer;
  std::string tensor;
  Phase phase = Phase::kForward;
  int microbatch = 0;
  std::vector<StatValue> values;
};

}  // namespace amaxscope
