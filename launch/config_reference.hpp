// The page docs/reference/config.md: every key of the debug YAML, made from the tables that the validator
// reads. Pure functions.
#pragma once

#include <string>

#include "runtime/feature/registry.hpp"

namespace amaxscope::launch {

/// Markdown: the keys of sections, of `layers`, of lists and schedules, and for each feature of the registry
/// its keys with type, default and range, its statistics, and an example that loads.
std::string config_reference(const FeatureRegistry& registry);

/// "list of strings" and so on, as messages and pages call it.
std::string_view type_name(KeyType type);

}  // namespace amaxscope::launch
