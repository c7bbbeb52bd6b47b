// From one feature's mapping in the YAML to a FeatureConfig. Internal to config/.
#pragma once

#include <optional>
#include <string>

#include "runtime/config/diagnostics.hpp"
#include "runtime/config/feature_config.hpp"
#include "runtime/feature/registry.hpp"

namespace amaxscope {

/// What a feature must know of the section it stands in.
struct FeaturePlace {
  std::string section;
  bool enabled = true;  ///< of the section
  bool has_layers = true;
  bool has_observe = false;
  std::size_t& values_left;  ///< how many resolved values the whole config may still hold
};

/// No value for a feature that is disabled or wrong; it is checked in either case. In a disabled feature or
/// section only what is wrong is an error; what is merely missing is a warning, as it is in the reference.
std::optional<FeatureConfig> parse_feature(const FeatureEntry& entry, const ConfigValue::Member& member,
                                           const FeaturePlace& place, Diagnostics& diagnostics);

}  // namespace amaxscope
