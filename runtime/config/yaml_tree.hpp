// A YAML document as its parser reports it: nodes in an array, aliases not yet expanded. Internal to config/.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/config/diagnostics.hpp"
#include "runtime/config/yaml_text.hpp"

namespace amaxscope {

inline constexpr std::size_t kMaxYamlNodes = 100'000;
inline constexpr std::size_t kMaxYamlDepth = 64;

struct YamlNode {
  enum class Kind { kNull, kScalar, kList, kMapping, kAlias };
  Kind kind = Kind::kNull;
  SourcePosition position;
  std::string tag;                    ///< as yaml-cpp gives it: "?" none, "!" quoted, else the full tag
  std::string text;                   ///< of a scalar
  std::vector<std::size_t> children;  ///< of a mapping: key, value, key, value
  std::size_t target = 0;             ///< of an alias
};

/// Node 0 is the root; an empty document has none.
using YamlTree = std::vector<YamlNode>;

/// No value, and an error in the diagnostics, for text that is not one valid YAML document or passes a limit.
std::optional<YamlTree> parse_yaml_tree(const YamlText& text, Diagnostics& diagnostics);

}  // namespace amaxscope
