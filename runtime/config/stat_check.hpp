// Checks a list of statistics against a feature's schema. Internal to config/.
#pragma once

#include <string_view>

#include "runtime/config/diagnostics.hpp"
#include "runtime/config/feature_config.hpp"
#include "runtime/config/value.hpp"
#include "runtime/feature/schema.hpp"

namespace amaxscope {

/// False, with errors in the diagnostics, when the value is not a list of statistics that the feature has.
bool check_statistics(std::string_view key, const FeatureSchema& schema, const ConfigValue& value,
                      Diagnostics& diagnostics);

/// An entry of a checked list: "mean" or {name: {parameter: value}}.
StatRequest read_statistic(const ConfigValue& entry);

}  // namespace amaxscope
