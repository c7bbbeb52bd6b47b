#include "runtime/config/feature_config.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "runtime/config/stat_check.hpp"

namespace amaxscope {

namespace {

// The schema has checked every value; a getter of another type is a bug of the feature.
template <class T>
const T& checked(const T* value, std::string_view key, const ConfigValue& found) {
  AMAXSCOPE_CHECK(value != nullptr, ErrorCode::kInternal,
                  "key {} holds {}, the feature asked for another type", key, found.kind_name());
  return *value;
}

}  // namespace

const ConfigValue* FeatureParams::find(std::string_view key) const {
  const auto found = values.find(key);
  return found == values.end() ? nullptr : &found->second;
}

bool FeatureParams::get_bool(std::string_view key, bool fallback) const {
  const ConfigValue* value = find(key);
  return value == nullptr ? fallback : checked(value->as_bool(), key, *value);
}

std::int64_t FeatureParams::get_integer(std::string_view key, std::int64_t fallback) const {
  const ConfigValue* value = find(key);
  return value == nullptr ? fallback : checked(value->as_integer(), key, *value);
}

double FeatureParams::get_number(std::string_view key, double fallback) const {
  const ConfigValue* value = find(key);
  if (value == nullptr) return fallback;
  double number = 0;
  return checked(value->as_number(number) ? &number : nullptr, key, *value);
}

std::string FeatureParams::get_string(std::string_view key, std::string_view fallback) const {
  const ConfigValue* value = find(key);
  return value == nullptr ? std::string(fallback) : checked(value->as_string(), key, *value);
}

std::vector<std::string> FeatureParams::get_strings(std::string_view key) const {
  const ConfigValue* value = find(key);
  if (value == nullptr) return {};
  if (const std::string* text = value->as_string()) return {*text};
  std::vector<std::string> strings;
  for (const ConfigValue& entry : checked(value->as_list(), key, *value)) {
    const std::string& text = checked(entry.as_string(), key, entry);
    if (std::find(strings.begin(), strings.end(), text) == strings.end()) strings.push_back(text);
  }
  return strings;
}

std::vector<StatRequest> stat_requests(const FeatureParams& params, std::string_view key) {
  const ConfigValue* value = params.find(key);
  if (value == nullptr) return {};
  if (value->as_string() != nullptr) return {read_statistic(*value)};
  std::vector<StatRequest> requests;
  for (const ConfigValue& entry : checked(value->as_list(), key, *value)) {
    StatRequest request = read_statistic(entry);
    const bool known = std::any_of(requests.begin(), requests.end(), [&](const StatRequest& other) {
      return other.name == request.name && other.parameters == request.parameters;
    });
    if (!known) requests.push_back(std::move(request));
  }
  return requests;
}

const FeatureParams* FeatureConfig::params(std::optional<Gemm> gemm, std::optional<TensorKind> tensor) const {
  const auto found = selected.find({gemm, tensor});
  return found == selected.end() ? nullptr : &found->second;
}

}  // namespace amaxscope
