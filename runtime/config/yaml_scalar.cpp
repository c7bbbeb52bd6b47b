#include "runtime/config/yaml_scalar.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>

namespace amaxscope {

namespace {

// lower, Capitalised or UPPER; "tRUE" is a string.
bool is_word(std::string_view text, std::string_view lower) {
  if (text.size() != lower.size()) return false;
  const auto upper = [](char c) { return static_cast<char>(c - 'a' + 'A'); };
  const auto letter = [](char c) { return c >= 'a' && c <= 'z'; };
  bool is_lower = true;
  bool is_capital = true;
  bool is_upper = true;
  bool first = true;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char small = lower[i];
    const char big = letter(small) ? upper(small) : small;
    is_lower = is_lower && text[i] == small;
    is_upper = is_upper && text[i] == big;
    is_capital = is_capital && text[i] == (first ? big : small);
    if (letter(small)) first = false;
  }
  return is_lower || is_capital || is_upper;
}

bool digit(char c) { return c >= '0' && c <= '9'; }

std::size_t skip_digits(std::string_view text, std::size_t at) {
  while (at < text.size() && (digit(text[at]) || text[at] == '_')) ++at;
  return at;
}

std::string without_underscores(std::string_view text) {
  std::string result(text);
  std::erase(result, '_');
  return result;
}

struct IntegerForm {
  std::string_view digits;
  int base;
};

// `unsigned_text` has no sign.
std::optional<IntegerForm> integer_form(std::string_view unsigned_text) {
  const auto all = [](std::string_view digits, std::string_view alphabet) {
    return std::any_of(digits.begin(), digits.end(), [](char c) { return c != '_'; }) &&
           digits.find_first_not_of(alphabet) == std::string_view::npos;
  };
  if (unsigned_text.empty()) return std::nullopt;
  if (unsigned_text == "0") return IntegerForm{unsigned_text, 10};
  if (unsigned_text.starts_with('0')) {
    const std::string_view rest = unsigned_text.substr(1);
    if (rest.starts_with('x') && all(rest.substr(1), "0123456789abcdefABCDEF_"))
      return IntegerForm{rest.substr(1), 16};
    if (rest.starts_with('b') && all(rest.substr(1), "01_")) return IntegerForm{rest.substr(1), 2};
    if (rest.starts_with('o') && all(rest.substr(1), "01234567_")) return IntegerForm{rest.substr(1), 8};
    if (all(rest, "01234567_")) return IntegerForm{rest, 8};
    return std::nullopt;
  }
  if (digit(unsigned_text.front()) && all(unsigned_text, "0123456789_"))
    return IntegerForm{unsigned_text, 10};
  return std::nullopt;
}

// digits [. digits] [e [sign] digits], with a dot or an exponent; or . digits ...
bool has_number_form(std::string_view text) {
  std::size_t at = skip_digits(text, 0);
  const bool whole = at > 0 && digit(text[0]);
  bool dot = false;
  if (at < text.size() && text[at] == '.') {
    dot = true;
    const std::size_t fraction = ++at;
    at = skip_digits(text, at);
    if (!whole && (at == fraction || !digit(text[fraction]))) return false;
  }
  if (!whole && !dot) return false;
  if (at == text.size()) return dot;
  if (text[at] != 'e' && text[at] != 'E') return false;
  ++at;
  if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
  const std::string_view exponent = text.substr(at);
  return !exponent.empty() && std::all_of(exponent.begin(), exponent.end(), digit);
}

// digits (: up to 59)+ [. digits]
bool has_base_sixty_form(std::string_view text) {
  if (text.empty() || !digit(text[0])) return false;
  std::size_t at = skip_digits(text, 0);
  bool colon = false;
  while (at < text.size() && text[at] == ':') {
    std::size_t count = 0;
    while (at + 1 + count < text.size() && digit(text[at + 1 + count])) ++count;
    if (count == 0 || count > 2 || (count == 2 && text[at + 1] > '5')) return false;
    at += 1 + count;
    colon = true;
  }
  if (!colon) return false;
  if (at == text.size()) return text[0] != '0';
  return text[at] == '.' && skip_digits(text, at + 1) == text.size();
}

ResolvedScalar integer(const IntegerForm& form, bool negative, std::string_view text) {
  const std::string digits = without_underscores(form.digits);
  std::uint64_t magnitude = 0;
  const auto [end, code] =
      std::from_chars(digits.data(), digits.data() + digits.size(), magnitude, form.base);
  constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (code != std::errc{} || magnitude > kMax) {
    return {{}, fmt::format("integer {} does not fit 64 bits", in_quotes(text))};
  }
  const auto value = static_cast<std::int64_t>(magnitude);
  return {negative ? -value : value, ""};
}

}  // namespace

ResolvedScalar resolve_plain_scalar(std::string_view text) {
  if (text.empty() || text == "~" || is_word(text, "null")) return {std::monostate{}, ""};
  for (const std::string_view word : {"true", "yes", "on"}) {
    if (is_word(text, word)) return {true, ""};
  }
  for (const std::string_view word : {"false", "no", "off"}) {
    if (is_word(text, word)) return {false, ""};
  }
  const bool negative = text.front() == '-';
  const std::string_view body = negative || text.front() == '+' ? text.substr(1) : text;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (is_word(body, ".inf")) return {negative ? -kInfinity : kInfinity, ""};
  if (text == ".nan" || text == ".NaN" || text == ".NAN")
    return {std::numeric_limits<double>::quiet_NaN(), ""};
  if (const auto form = integer_form(body)) return integer(*form, negative, text);
  if (has_number_form(body)) {
    const std::string digits = without_underscores(body);
    double value = 0;
    const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (code != std::errc{}) return {{}, fmt::format("number {} does not fit a double", in_quotes(text))};
    return {negative ? -value : value, ""};
  }
  if (has_base_sixty_form(body)) {
    return {{}, fmt::format("{} is a base-60 number in YAML; quote it if text is meant", in_quotes(text))};
  }
  return {std::string(text), ""};
}

}  // namespace amaxscope
