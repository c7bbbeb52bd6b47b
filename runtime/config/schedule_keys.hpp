// The schedule keys of the YAML (freq, start_step, end_step, start_end_list). Internal to config/.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "runtime/config/diagnostics.hpp"
#include "runtime/config/value.hpp"
#include "runtime/schedule/schedule.hpp"

namespace amaxscope {

/// From keys that check_key has accepted, overlaid; other keys are skipped. No value, and an error at the key
/// to blame, when they contradict each other: an end before its start, overlapping pairs.
std::optional<Schedule> schedule_from(const std::map<std::string, ConfigValue, std::less<>>& keys,
                                      Diagnostics& diagnostics);

}  // namespace amaxscope
