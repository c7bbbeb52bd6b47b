// The debug YAML, loaded and checked. Read-only after loading.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/feature_config.hpp"
#include "runtime/config/layer_selector.hpp"
#include "runtime/feature/registry.hpp"

namespace amaxscope {

struct ConfigSection {
  std::string name;
  SourcePosition position;
  bool enabled = true;
  std::unique_ptr<LayerSelector> layers;  ///< null: selects no GEMM layer
  std::optional<Pattern> observe;         ///< names of observed tensors
  std::vector<FeatureConfig> features;    ///< enabled ones, in the order of the file
};

struct Config {
  std::string source;  ///< file name as given
  std::string text;
  std::vector<ConfigSection> sections;  ///< disabled ones included (checked, never acting)
  std::vector<std::string> warnings;    ///< formatted, "file:line:column: ..."
};

/// The bytes of a config file. Throws Error(kConfig) naming the path and the reason: missing, a directory,
/// not readable, over 1 MiB.
std::string read_config_file(const std::filesystem::path& path);

/// Throws Error(kConfig) with every error of the text, one a line. A valid text without an enabled section
/// (also an empty one) loads, with a warning.
Config load_config(std::string_view text, std::string source, const FeatureRegistry& registry);

/// 64-bit FNV-1a of the bytes, 16 hex digits.
std::string text_digest(std::string_view text);

}  // namespace amaxscope
