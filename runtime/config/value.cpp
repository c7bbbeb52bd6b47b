#include "runtime/config/value.hpp"

#include <fmt/format.h>

#include <cmath>

namespace amaxscope {

ConfigValue::ConfigValue() = default;
ConfigValue::ConfigValue(Data data, SourcePosition position) : data_(std::move(data)), position_(position) {}
ConfigValue::ConfigValue(const ConfigValue&) = default;
ConfigValue::ConfigValue(ConfigValue&&) noexcept = default;
ConfigValue& ConfigValue::operator=(const ConfigValue&) = default;
ConfigValue& ConfigValue::operator=(ConfigValue&&) noexcept = default;
ConfigValue::~ConfigValue() = default;

bool ConfigValue::is_null() const noexcept { return std::holds_alternative<std::monostate>(data_); }
const bool* ConfigValue::as_bool() const noexcept { return std::get_if<bool>(&data_); }
const std::int64_t* ConfigValue::as_integer() const noexcept { return std::get_if<std::int64_t>(&data_); }
const std::string* ConfigValue::as_string() const noexcept { return std::get_if<std::string>(&data_); }
const ConfigValue::List* ConfigValue::as_list() const noexcept { return std::get_if<List>(&data_); }
const ConfigValue::Mapping* ConfigValue::as_mapping() const noexcept { return std::get_if<Mapping>(&data_); }

bool ConfigValue::as_number(double& number) const noexcept {
  if (const auto* real = std::get_if<double>(&data_)) {
    number = *real;
    return true;
  }
  if (const auto* integer = as_integer()) {
    number = static_cast<double>(*integer);
    return true;
  }
  return false;
}

const ConfigValue* ConfigValue::find(std::string_view key) const noexcept {
  const Mapping* mapping = as_mapping();
  if (mapping == nullptr) return nullptr;
  for (const Member& member : *mapping) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

std::string_view ConfigValue::kind_name() const noexcept {
  // In the order of Data.
  constexpr std::string_view kNames[] = {"null",     "a bool", "an integer", "a number",
                                         "a string", "a list", "a mapping"};
  return kNames[data_.index()];
}

std::string ConfigValue::summary() const {
  if (const bool* flag = as_bool()) return *flag ? "True" : "False";
  if (const std::int64_t* integer = as_integer()) return fmt::format("{}", *integer);
  if (const auto* real = std::get_if<double>(&data_)) {
    if (std::isnan(*real)) return ".nan";
    if (std::isinf(*real)) return *real > 0 ? ".inf" : "-.inf";
    return fmt::format("{}", *real);
  }
  if (const std::string* text = as_string()) return in_quotes(*text);
  if (as_list() != nullptr) return "[...]";
  if (as_mapping() != nullptr) return "{...}";
  return "null";
}

std::string ConfigValue::described() const {
  if (is_null()) return "nothing";
  if (as_list() != nullptr || as_mapping() != nullptr) return std::string(kind_name());
  return fmt::format("{} {}", kind_name(), summary());
}

}  // namespace amaxscope
