#include "runtime/config/layer_selector.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <vector>

#include "core/error.hpp"
#include "runtime/config/structure_keys.hpp"

namespace amaxscope {

namespace {

struct NumberRange {
  std::int64_t first;
  std::int64_t last;  // included
};

struct Numbers {
  bool all = false;
  std::vector<NumberRange> ranges;
};

struct Types {
  bool all = false;
  std::vector<std::string> parts;
};

bool digit(char c) { return c >= '0' && c <= '9'; }

std::int64_t to_number(std::string_view digits) {
  std::int64_t value = 0;
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return code == std::errc{} ? value : std::numeric_limits<std::int64_t>::max();
}

// The integers of a name; digits straight after "fc" name a layer type, not a number.
std::vector<std::int64_t> numbers_in(std::string_view name) {
  std::vector<std::int64_t> numbers;
  for (std::size_t at = 0; at < name.size();) {
    if (!digit(name[at])) {
      ++at;
      continue;
    }
    const std::size_t begin = at;
    while (at < name.size() && digit(name[at])) ++at;
    if (!name.substr(0, begin).ends_with("fc")) numbers.push_back(to_number(name.substr(begin, at - begin)));
  }
  return numbers;
}

class Selector : public LayerSelector {
 public:
  std::optional<std::vector<std::string>> exact_names;
  std::optional<Pattern> pattern;
  std::optional<Types> types;
  std::optional<Numbers> numbers;

  bool matches(std::string_view name, std::optional<int> number) const override {
    if (exact_names) return std::find(exact_names->begin(), exact_names->end(), name) != exact_names->end();
    if (pattern) return pattern->found_in(name);
    // Types first: a name they exclude is never asked for its number.
    return (!types || type_matches(name)) && (!numbers || number_matches(name, number));
  }

  const Pattern* deciding_pattern() const noexcept override {
    return !exact_names && pattern ? &*pattern : nullptr;
  }

 private:
  [[nodiscard]] bool type_matches(std::string_view name) const {
    return types->all || std::any_of(types->parts.begin(), types->parts.end(), [&](const std::string& part) {
             return name.find(part) != std::string_view::npos;
           });
  }

  [[nodiscard]] bool number_matches(std::string_view name, std::optional<int> number) const {
    if (numbers->all) return true;
    std::int64_t value = 0;
    if (number) {
      value = *number;
    } else {
      const std::vector<std::int64_t> found = numbers_in(name);
      if (found.empty()) return false;
      AMAXSCOPE_CHECK(found.size() == 1, ErrorCode::kConfig,
                      "layer {} has {} integers in its name and was registered without a number, so "
                      "layer_numbers cannot tell which one counts; register the layer with its number",
                      in_quotes(name), found.size());
      value = found.front();
    }
    return std::any_of(numbers->ranges.begin(), numbers->ranges.end(),
                       [&](const NumberRange& range) { return range.first <= value && value <= range.last; });
  }
};

class Parser {
 public:
  explicit Parser(Diagnostics& diagnostics) : diagnostics_(diagnostics) {}

  std::unique_ptr<LayerSelector> parse(const ConfigValue& layers);

 private:
  std::optional<std::vector<std::string>> strings(const ConfigValue::Member& member);
  std::optional<Pattern> pattern(const ConfigValue::Member& member);
  std::optional<Numbers> numbers(const ConfigValue::Member& member);
  bool number_entry(const ConfigValue& entry, Numbers& numbers);
  void warn_ignored(const ConfigValue::Mapping& members, std::string_view deciding,
                    const std::vector<std::string_view>& ignored);

  Diagnostics& diagnostics_;
};

std::vector<std::string> selector_keys() { return names_of(layer_keys()); }

std::optional<std::vector<std::string>> Parser::strings(const ConfigValue::Member& member) {
  ConfigValue::List entries;
  if (const auto* list = member.value.as_list()) {
    entries = *list;
  } else {
    entries.push_back(member.value);
  }
  if (entries.empty()) {
    diagnostics_.error(member.value.position(), fmt::format("{} is empty: it selects no layer", member.key));
    return std::nullopt;
  }
  std::vector<std::string> result;
  bool good = true;
  for (const ConfigValue& entry : entries) {
    const std::string* text = entry.as_string();
    good = good && text != nullptr && !text->empty();
    if (text == nullptr) {
      diagnostics_.error(entry.position(), fmt::format("{} must be a list of strings, found {}", member.key,
                                                       entry.described()));
    } else if (text->empty()) {
      diagnostics_.error(
          entry.position(),
          fmt::format("{} holds an empty string; write all to select every layer", member.key));
    } else {
      result.push_back(*text);
    }
  }
  return good ? std::optional(std::move(result)) : std::nullopt;
}

std::optional<Pattern> Parser::pattern(const ConfigValue::Member& member) {
  const std::string* text = member.value.as_string();
  if (text == nullptr) {
    diagnostics_.error(member.value.position(), fmt::format("{} must be a string, found {}; quote it",
                                                            member.key, member.value.described()));
    return std::nullopt;
  }
  try {
    return Pattern(*text);
  } catch (const Error& error) {
    diagnostics_.error(member.value.position(), fmt::format("{}: {}", member.key, error.what()));
    return std::nullopt;
  }
}

bool Parser::number_entry(const ConfigValue& entry, Numbers& numbers) {
  if (const std::int64_t* number = entry.as_integer()) {
    numbers.ranges.push_back({*number, *number});
    return true;
  }
  if (const std::string* text = entry.as_string()) {
    if (*text == "all" || *text == "All" || *text == "ALL") {
      numbers.all = true;
      return true;
    }
    const std::size_t dash = text->find('-');
    if (dash != std::string::npos) {
      const std::string_view first = std::string_view(*text).substr(0, dash);
      const std::string_view last = std::string_view(*text).substr(dash + 1);
      const auto is_number = [](std::string_view part) {
        return !part.empty() && part.size() <= 18 && std::all_of(part.begin(), part.end(), digit);
      };
      if (is_number(first) && is_number(last) && to_number(first) <= to_number(last)) {
        numbers.ranges.push_back({to_number(first), to_number(last)});
        return true;
      }
    }
  }
  diagnostics_.error(entry.position(),
                     fmt::format("layer_numbers takes integers, \"a-b\" ranges with a <= b, or all; found {}",
                                 entry.described()));
  return false;
}

std::optional<Numbers> Parser::numbers(const ConfigValue::Member& member) {
  Numbers result;
  const ConfigValue::List* list = member.value.as_list();
  if (list == nullptr) return number_entry(member.value, result) ? std::optional(result) : std::nullopt;
  if (list->empty()) {
    diagnostics_.error(member.value.position(), "layer_numbers is empty: it selects no layer");
    return std::nullopt;
  }
  bool good = true;
  for (const ConfigValue& entry : *list) good = number_entry(entry, result) && good;
  return good ? std::optional(std::move(result)) : std::nullopt;
}

void Parser::warn_ignored(const ConfigValue::Mapping& members, std::string_view deciding,
                          const std::vector<std::string_view>& ignored) {
  for (const ConfigValue::Member& member : members) {
    if (std::find(ignored.begin(), ignored.end(), member.key) == ignored.end()) continue;
    diagnostics_.warn(member.position,
                      fmt::format("{} is ignored: {} alone decides when it is given", member.key, deciding));
  }
}

std::unique_ptr<LayerSelector> Parser::parse(const ConfigValue& layers) {
  const ConfigValue::Mapping* members = layers.as_mapping();
  if (members == nullptr) {
    diagnostics_.error(layers.position(), fmt::format("layers must be a mapping, found {}{}",
                                                      layers.described(), suggestion("", selector_keys())));
    return nullptr;
  }
  auto selector = std::make_unique<Selector>();
  bool good = true;
  for (const ConfigValue::Member& member : *members) {
    if (member.key == "exact_layer_names") {
      selector->exact_names = strings(member);
      good = good && selector->exact_names.has_value();
    } else if (member.key == "layer_name_regex_pattern") {
      selector->pattern = pattern(member);
      good = good && selector->pattern.has_value();
    } else if (member.key == "layer_types") {
      if (auto parts = strings(member)) {
        const bool all = std::find(parts->begin(), parts->end(), "all") != parts->end();
        selector->types = Types{all, std::move(*parts)};
      }
      good = good && selector->types.has_value();
    } else if (member.key == "layer_numbers") {
      selector->numbers = numbers(member);
      good = good && selector->numbers.has_value();
    } else {
      diagnostics_.error(member.position, fmt::format("unknown key {} in layers{}", in_quotes(member.key),
                                                      suggestion(member.key, selector_keys())));
      good = false;
    }
  }
  if (!good) return nullptr;
  if (selector->exact_names) {
    warn_ignored(*members, "exact_layer_names", {"layer_name_regex_pattern", "layer_types", "layer_numbers"});
  } else if (selector->pattern) {
    warn_ignored(*members, "layer_name_regex_pattern", {"layer_types", "layer_numbers"});
  } else if (!selector->types && !selector->numbers) {
    diagnostics_.error(layers.position(), "layers selects nothing" + suggestion("", selector_keys()));
    return nullptr;
  }
  return selector;
}

}  // namespace

std::unique_ptr<LayerSelector> LayerSelector::parse(const ConfigValue& layers, Diagnostics& diagnostics) {
  return Parser(diagnostics).parse(layers);
}

}  // namespace amaxscope
