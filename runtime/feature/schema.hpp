// What a feature's mapping in the YAML may hold. The validator, `amaxscope explain` and the documentation all
// read this. Value types.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/config/diagnostics.hpp"
#include "runtime/config/value.hpp"

namespace amaxscope {

enum class KeyType { kBool, kInteger, kNumber, kString, kStringList, kStatList, kIntervalList };

struct KeySchema {
  std::string name;
  KeyType type = KeyType::kString;
  bool required = false;
  std::string default_text;               ///< as it would be written in YAML; empty: no default
  std::string doc;                        ///< one sentence
  std::vector<std::string> allowed = {};  ///< for strings, string lists and integers; empty: anything
  std::optional<std::int64_t> minimum = std::nullopt;  ///< for integers
  bool addition = false;                               ///< not in the reference: "(new)"
};

/// A statistic that kStatList may name, bare or as {name: {parameter: value}}.
struct StatSchema {
  std::string name;
  std::string doc;
  std::vector<KeySchema> parameters = {};
  bool addition = false;
};

struct FeatureSchema {
  std::string name;
  std::vector<std::string> deprecated_aliases = {};
  std::string doc;
  bool takes_gemms = false;
  bool takes_tensors = false;
  bool free_tensor_names = false;  ///< base namespace: tensors are not tied to GEMMs
  std::vector<KeySchema> keys =
      {};  ///< own keys; freq, start_step, end_step, start_end_list are added to all
  std::vector<StatSchema> statistics = {};
  bool addition = false;

  /// Names a kStatList entry may have beyond `statistics` (recipe prefixes, suffixes): true when valid. May
  /// be empty. Sets `reason` (what is wrong with a word that is almost right) when it refuses one.
  std::function<bool(std::string_view word, std::string& reason)> accepts_statistic = {};
};

/// freq, start_step, end_step, start_end_list: keys of every feature.
const std::vector<KeySchema>& schedule_keys();

}  // namespace amaxscope
