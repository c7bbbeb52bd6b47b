// Values of JSON that may be of anybody: what is there and of the right kind, or nothing; and the other way,
// the numbers that JSON has no word for. For report/ and launch/.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace amaxscope::report {

inline std::string text_of(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// Within +-2^53, so that differences of two of them do not overflow.
inline std::optional<std::int64_t> integer_of(const nlohmann::json& value) {
  constexpr double kLargest = 0x1p53;
  if (!value.is_number_integer()) return std::nullopt;
  if (const auto size = value.get<double>(); std::abs(size) > kLargest) return std::nullopt;
  return value.get<std::int64_t>();
}

inline std::optional<std::int64_t> integer_of(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() ? integer_of(*found) : std::nullopt;
}

/// The elements of an array that are integers.
inline std::vector<std::int64_t> integers_of(const nlohmann::json& object, const char* key) {
  std::vector<std::int64_t> integers;
  const auto found = object.find(key);
  if (found == object.end() || !found->is_array()) return integers;
  for (const nlohmann::json& each : *found) {
    if (const auto number = integer_of(each)) integers.push_back(*number);
  }
  return integers;
}

/// A number, or one of the texts that records have for what is no number in JSON.
inline std::optional<double> number_of(const nlohmann::json& value) {
  if (value.is_number()) return value.get<double>();
  if (!value.is_string()) return std::nullopt;
  const auto& text = value.get_ref<const std::string&>();
  if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (text == "Infinity") return std::numeric_limits<double>::infinity();
  if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

/// The other way.
inline nlohmann::ordered_json json_of(double number) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number > 0 ? "Infinity" : "-Infinity";
  return number;
}

inline std::vector<std::string> texts_of(const nlohmann::json& object, const char* key) {
  std::vector<std::string> texts;
  const auto found = object.find(key);
  if (found == object.end() || !found->is_array()) return texts;
  for (const nlohmann::json& each : *found) {
    if (each.is_string()) texts.push_back(each.get<std::string>());
  }
  return texts;
}

}  // namespace amaxscope::report
