#include "report/precision_config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

namespace amaxscope::report {

std::string config_section(std::string_view name, std::string_view layers, std::string_view feature) {
  return fmt::format("{}:\n  enabled: True\n  layers: {{{}}}\n  transformer_engine:\n    {}\n", name, layers,
                     feature);
}

std::string these_layers(const std::vector<std::string>& names) {
  std::vector<std::string> quoted;
  for (const std::string& name : names)
    quoted.push_back(nlohmann::json(name).dump());  // YAML reads JSON's strings
  return fmt::format("exact_layer_names: [{}]", fmt::join(quoted, ", "));
}

std::string gemms_not_quantized(const std::vector<std::string>& gemms) {
  return fmt::format("DisableQuantizationGEMM: {{enabled: True, gemms: [{}]}}", fmt::join(gemms, ", "));
}

}  // namespace amaxscope::report
