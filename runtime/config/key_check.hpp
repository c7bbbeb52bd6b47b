// Checks one key of a feature's mapping against its schema. Internal to config/.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/diagnostics.hpp"
#include "runtime/config/value.hpp"
#include "runtime/feature/schema.hpp"

namespace amaxscope {

/// False, with errors in the diagnostics, when the value is not what the key takes. `schema` is the feature
/// the key belongs to: its statistics and its name are needed for messages.
bool check_key(const KeySchema& key, const FeatureSchema& schema, const ConfigValue::Member& member,
               Diagnostics& diagnostics);

/// Reads a bool; `false` and an error for anything else ("False" in quotes is a string, and would be true).
bool check_bool(std::string_view name, const ConfigValue& value, Diagnostics& diagnostics, bool& result);

}  // namespace amaxscope
