// A parsed YAML value with its place. Read-only after parsing, safe to share between threads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/config/diagnostics.hpp"

namespace amaxscope {

class ConfigValue {
 public:
  using List = std::vector<ConfigValue>;
  struct Member;                        // key, its place, value
  using Mapping = std::vector<Member>;  // in the order of the file, keys unique
  using Data = std::variant<std::monostate, bool, std::int64_t, double, std::string, List, Mapping>;

  ConfigValue();
  ConfigValue(Data data, SourcePosition position);
  ConfigValue(const ConfigValue&);
  ConfigValue(ConfigValue&&) noexcept;
  ConfigValue& operator=(const ConfigValue&);
  ConfigValue& operator=(ConfigValue&&) noexcept;
  ~ConfigValue();

  [[nodiscard]] SourcePosition position() const noexcept { return position_; }
  [[nodiscard]] bool is_null() const noexcept;
  [[nodiscard]] const bool* as_bool() const noexcept;
  [[nodiscard]] const std::int64_t* as_integer() const noexcept;
  /// Integers count as numbers; no value for anything else.
  [[nodiscard]] bool as_number(double& number) const noexcept;
  [[nodiscard]] const std::string* as_string() const noexcept;
  [[nodiscard]] const List* as_list() const noexcept;
  [[nodiscard]] const Mapping* as_mapping() const noexcept;
  /// Member of a mapping; null when absent or not a mapping.
  [[nodiscard]] const ConfigValue* find(std::string_view key) const noexcept;
  /// "a string", "a list", ...: for messages.
  [[nodiscard]] std::string_view kind_name() const noexcept;
  /// Short text of a scalar, `[...]` or `{...}` otherwise: for messages.
  [[nodiscard]] std::string summary() const;
  /// What was found, for messages: `a string "x"`, `an integer 5`, `a list`, `nothing`.
  [[nodiscard]] std::string described() const;

 private:
  Data data_;
  SourcePosition position_;
};

struct ConfigValue::Member {
  std::string key;
  SourcePosition position;
  ConfigValue value;
};

/// Parses YAML 1.1 as PyYAML's safe loader reads it (config.md section 1): booleans, anchors, merge keys;
/// also 1e-3 as a number. Errors (syntax, duplicate key, tag, alias bomb, over 1 MiB, 100,000 nodes or depth
/// 64) go to the diagnostics and give null. An empty document is null.
ConfigValue parse_yaml(std::string_view text, Diagnostics& diagnostics);

}  // namespace amaxscope
