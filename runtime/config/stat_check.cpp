#include "runtime/config/stat_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "core/error.hpp"
#include "runtime/config/key_check.hpp"

namespace amaxscope {

namespace {

class StatCheck {
 public:
  StatCheck(std::string_view key, const FeatureSchema& schema, Diagnostics& diagnostics)
      : key_(key), schema_(schema), diagnostics_(diagnostics) {
    for (const StatSchema& stat : schema.statistics) names_.push_back(stat.name);
  }

  bool entry(const ConfigValue& value) {
    position_ = value.position();
    if (const std::string* name = value.as_string()) return statistic(*name, value.position(), nullptr);
    if (const ConfigValue::Mapping* mapping = value.as_mapping()) return parametrised(value, *mapping);
    return fail(value.position(),
                fmt::format("{} holds names of statistics, found {}", key_, value.described()));
  }

 private:
  bool fail(SourcePosition position, std::string message) {
    diagnostics_.error(position, std::move(message));
    return false;
  }

  bool parametrised(const ConfigValue& value, const ConfigValue::Mapping& mapping) {
    if (mapping.size() != 1) {
      return fail(
          value.position(),
          fmt::format("a statistic with parameters is written {{name: {{parameter: value}}}}, found a "
                      "mapping of {} keys; are the parameters indented below the name?",
                      mapping.size()));
    }
    return statistic(mapping.front().key, mapping.front().position, &mapping.front().value);
  }

  bool statistic(const std::string& name, SourcePosition position, const ConfigValue* parameters) {
    const auto stat = std::find_if(schema_.statistics.begin(), schema_.statistics.end(),
                                   [&](const StatSchema& candidate) { return candidate.name == name; });
    if (stat != schema_.statistics.end()) return check_parameters(*stat, parameters);
    std::string reason;
    if (schema_.accepts_statistic && schema_.accepts_statistic(name, reason)) {
      if (parameters == nullptr) return true;
      return fail(position, fmt::format("statistic {} takes no parameters", in_quotes(name)));
    }
    return fail(position, reason.empty()
                              ? fmt::format("unknown statistic {} in {}{}", in_quotes(name), schema_.name,
                                            suggestion(name, names_))
                              : fmt::format("statistic {} in {}: {}", in_quotes(name), schema_.name, reason));
  }

  bool check_parameters(const StatSchema& stat, const ConfigValue* parameters) {
    if (parameters == nullptr || parameters->is_null()) return required_given(stat, parameters, {});
    const ConfigValue::Mapping* mapping = parameters->as_mapping();
    if (mapping == nullptr) {
      return fail(parameters->position(), fmt::format("parameters of {} must be a mapping, found {}",
                                                      stat.name, parameters->described()));
    }
    if (stat.parameters.empty()) {
      return fail(parameters->position(), fmt::format("statistic \"{}\" takes no parameters", stat.name));
    }
    std::vector<std::string> known;
    for (const KeySchema& parameter : stat.parameters) known.push_back(parameter.name);
    FeatureSchema owner;  // parameters are checked as keys of the statistic
    owner.name = stat.name;
    bool good = true;
    for (const ConfigValue::Member& member : *mapping) {
      const auto parameter =
          std::find_if(stat.parameters.begin(), stat.parameters.end(),
                       [&](const KeySchema& candidate) { return candidate.name == member.key; });
      if (parameter == stat.parameters.end()) {
        good = fail(member.position, fmt::format("unknown parameter {} of {}{}", in_quotes(member.key),
                                                 stat.name, suggestion(member.key, known)));
      } else {
        good = check_key(*parameter, owner, member, diagnostics_) && good;
      }
    }
    return required_given(stat, parameters, *mapping) && good;
  }

  bool required_given(const StatSchema& stat, const ConfigValue* where, const ConfigValue::Mapping& mapping) {
    for (const KeySchema& parameter : stat.parameters) {
      const bool given = std::any_of(mapping.begin(), mapping.end(), [&](const ConfigValue::Member& member) {
        return member.key == parameter.name;
      });
      if (parameter.required && !given) {
        return fail(where == nullptr ? position_ : where->position(),
                    fmt::format("statistic \"{}\" needs the parameter {}", stat.name, parameter.name));
      }
    }
    return true;
  }

  std::string_view key_;
  const FeatureSchema& schema_;
  Diagnostics& diagnostics_;
  std::vector<std::string> names_;
  SourcePosition position_;  // of the entry being checked
};

}  // namespace

bool check_statistics(std::string_view key, const FeatureSchema& schema, const ConfigValue& value,
                      Diagnostics& diagnostics) {
  StatCheck check(key, schema, diagnostics);
  const ConfigValue::List* list = value.as_list();
  if (list == nullptr && value.as_string() == nullptr) {
    diagnostics.error(value.position(),
                      fmt::format("{} must be a list of statistics, found {}", key, value.described()));
    return false;
  }
  const ConfigValue::List entries = list != nullptr ? *list : ConfigValue::List{value};
  if (entries.empty()) {
    diagnostics.error(value.position(), fmt::format("{} is an empty list: there is nothing to do", key));
    return false;
  }
  bool good = true;
  std::set<std::pair<std::string, std::map<std::string, std::int64_t, std::less<>>>> seen;
  for (const ConfigValue& entry : entries) {
    if (!check.entry(entry)) {
      good = false;
      continue;
    }
    StatRequest request = read_statistic(entry);
    const std::string name = request.name;
    if (!seen.emplace(std::move(request.name), std::move(request.parameters)).second) {
      diagnostics.warn(entry.position(), fmt::format("{} is named twice in {}", in_quotes(name), key));
    }
  }
  return good;
}

StatRequest read_statistic(const ConfigValue& entry) {
  StatRequest request;
  request.position = entry.position();
  if (const std::string* name = entry.as_string()) {
    request.name = *name;
    return request;
  }
  const ConfigValue::Mapping* mapping = entry.as_mapping();
  AMAXSCOPE_CHECK(mapping != nullptr && mapping->size() == 1, ErrorCode::kInternal,
                  "a statistic of the config was not checked before use: {}", entry.summary());
  request.name = mapping->front().key;
  if (const ConfigValue::Mapping* parameters = mapping->front().value.as_mapping()) {
    for (const ConfigValue::Member& parameter : *parameters) {
      const std::int64_t* value = parameter.value.as_integer();
      AMAXSCOPE_CHECK(value != nullptr, ErrorCode::kInternal, "parameter {} of {} is not an integer",
                      parameter.key, request.name);
      request.parameters.emplace(parameter.key, *value);
    }
  }
  return request;
}

}  // namespace amaxscope
