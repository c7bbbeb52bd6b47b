#include "runtime/config/key_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "runtime/config/stat_check.hpp"

namespace amaxscope {

namespace {

std::string found(const ConfigValue& value) { return fmt::format("found {}", value.described()); }

class KeyCheck {
 public:
  KeyCheck(const KeySchema& key, std::string_view feature, Diagnostics& diagnostics)
      : key_(key), feature_(feature), diagnostics_(diagnostics) {}

  bool integer(const ConfigValue& value) {
    const std::int64_t* number = value.as_integer();
    if (number == nullptr) return wrong(value, "an integer");
    if (key_.minimum && *number < *key_.minimum) {
      return fail(value, fmt::format("{} must be {} or more, found {}", key_.name, *key_.minimum, *number));
    }
    return allowed(value, fmt::format("{}", *number));
  }

  bool number(const ConfigValue& value) {
    double real = 0;
    if (!value.as_number(real)) return wrong(value, "a number");
    if (!std::isfinite(real)) {
      return fail(value, fmt::format("{} must be a finite number, found {}", key_.name, value.summary()));
    }
    if (key_.minimum && real < static_cast<double>(*key_.minimum)) {
      return fail(value,
                  fmt::format("{} must be {} or more, found {}", key_.name, *key_.minimum, value.summary()));
    }
    return true;
  }

  bool string(const ConfigValue& value, std::string_view expected = "a string") {
    const std::string* text = value.as_string();
    if (text == nullptr) return wrong(value, expected);
    return allowed(value, *text);
  }

  bool string_list(const ConfigValue& value) {
    constexpr std::string_view kExpected = "a list of strings";
    const ConfigValue::List* list = value.as_list();
    if (list == nullptr) return string(value, kExpected);
    if (list->empty()) return fail(value, fmt::format("{} is an empty list", key_.name));
    bool good = true;
    std::set<std::string> seen;
    for (const ConfigValue& entry : *list) {
      good = string(entry, kExpected) && good;
      const std::string* text = entry.as_string();
      if (text != nullptr && !seen.insert(*text).second) {
        diagnostics_.warn(entry.position(),
                          fmt::format("{} is named twice in {}", in_quotes(*text), key_.name));
      }
    }
    return good;
  }

  bool interval_list(const ConfigValue& value) {
    if (value.is_null()) return true;  // Python's None: not given
    const ConfigValue::List* list = value.as_list();
    if (list == nullptr) return wrong(value, "a list of [start, end] pairs");
    if (list->empty()) return fail(value, fmt::format("{} is an empty list", key_.name));
    bool good = true;
    for (const ConfigValue& pair : *list) {
      const ConfigValue::List* ends = pair.as_list();
      const bool is_pair = ends != nullptr && ends->size() == 2 && (*ends)[0].as_integer() != nullptr &&
                           (*ends)[1].as_integer() != nullptr;
      if (!is_pair) {
        good = fail(pair, fmt::format("{} holds [start, end] pairs of integers, {}", key_.name,
                                      ends == nullptr ? found(pair)
                                                      : fmt::format("found a list of {}", ends->size())));
      }
    }
    return good;
  }

 private:
  bool fail(const ConfigValue& value, std::string message) {
    diagnostics_.error(value.position(), std::move(message));
    return false;
  }

  bool wrong(const ConfigValue& value, std::string_view expected) {
    const bool wants_text = key_.type == KeyType::kString || key_.type == KeyType::kStringList;
    const bool is_scalar = !value.is_null() && value.as_list() == nullptr && value.as_mapping() == nullptr;
    std::string hint;
    if (wants_text && is_scalar) hint = "; quote it if text is meant";
    if (key_.type == KeyType::kInteger && value.as_string() != nullptr) hint = "; write it without quotes";
    return fail(value, fmt::format("{} must be {}, {}{}", key_.name, expected, found(value), hint));
  }

  bool allowed(const ConfigValue& value, const std::string& text) {
    if (key_.allowed.empty()) return true;
    if (std::find(key_.allowed.begin(), key_.allowed.end(), text) != key_.allowed.end()) return true;
    return fail(value, fmt::format("unknown {} {} in {}{}", key_.name, value.summary(), feature_,
                                   suggestion(text, key_.allowed)));
  }

  const KeySchema& key_;
  std::string_view feature_;
  Diagnostics& diagnostics_;
};

}  // namespace

bool check_bool(std::string_view name, const ConfigValue& value, Diagnostics& diagnostics, bool& result) {
  if (const bool* flag = value.as_bool()) {
    result = *flag;
    return true;
  }
  const std::string_view hint = value.as_string() != nullptr ? "; write it without quotes" : "";
  diagnostics.error(value.position(),
                    fmt::format("{} must be True or False, {}{}", name, found(value), hint));
  return false;
}

bool check_key(const KeySchema& key, const FeatureSchema& schema, const ConfigValue::Member& member,
               Diagnostics& diagnostics) {
  const ConfigValue& value = member.value;
  KeyCheck check(key, schema.name, diagnostics);
  switch (key.type) {
    case KeyType::kBool: {
      bool ignored = false;
      return check_bool(key.name, value, diagnostics, ignored);
    }
    case KeyType::kInteger:
      return check.integer(value);
    case KeyType::kNumber:
      return check.number(value);
    case KeyType::kString:
      return check.string(value);
    case KeyType::kStringList:
      return check.string_list(value);
    case KeyType::kStatList:
      return check_statistics(key.name, schema, value, diagnostics);
    case KeyType::kIntervalList:
      return check.interval_list(value);
  }
  return false;
}

}  // namespace amaxscope
