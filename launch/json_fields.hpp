// Fields of JSON that may be of anybody: what is there and of the right kind, or nothing.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace amaxscope::launch {

inline std::optional<std::int64_t> integer_field(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);  // the end also when json is no object
  if (found == json.end() || !found->is_number_integer()) return std::nullopt;
  return found->get<std::int64_t>();
}

inline std::optional<std::string> text_field(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_string()) return std::nullopt;
  return found->get<std::string>();
}

}  // namespace amaxscope::launch
