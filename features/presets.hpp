// Debug configs that need no writing: `train --preset NAME`, `amaxscope presets NAME`, and for programs the
// text to give to SessionOptions::config_text. Pure functions.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace amaxscope {

struct Preset {
  std::string_view name;
  std::string_view summary;  ///< one sentence
  std::string_view yaml;     ///< as a user would write it
};

/// watch, nan, diagnose, gap, full.
std::span<const Preset> presets() noexcept;
const Preset* find_preset(std::string_view name) noexcept;
/// "watch, nan, diagnose, gap, full".
std::string preset_names();

}  // namespace amaxscope
