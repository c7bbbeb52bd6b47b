// Debug configs that leave things in high precision, as YAML: what `sense` and `blame` run a training under.
// Internal to report/.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace amaxscope::report {

inline constexpr std::string_view kAllLayers = "layer_types: [all]";
inline constexpr std::string_view kNoGemmQuantized = "DisableQuantizationLayer: {enabled: True}";

/// A section that applies a feature (in flow style) to these layers (a selector, such as kAllLayers).
std::string config_section(std::string_view name, std::string_view layers, std::string_view feature);
/// The selector of exactly these layers, whatever is in their names.
std::string these_layers(const std::vector<std::string>& names);
/// The feature that leaves these GEMMs in high precision.
std::string gemms_not_quantized(const std::vector<std::string>& gemms);

}  // namespace amaxscope::report
