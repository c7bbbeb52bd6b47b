#include "runtime/config/number_hint.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"

namespace amaxscope {

namespace {

/// Whether the pattern takes all of some names and none of the others.
bool separates(const std::string& text, const std::vector<std::string>& wanted,
               const std::vector<std::string>& unwanted) {
  try {
    const Pattern pattern(text);
    const auto found = [&](const std::string& name) { return pattern.found_in(name); };
    return std::ranges::all_of(wanted, found) && std::ranges::none_of(unwanted, found);
  } catch (const Error&) {
    return false;  // an addition that the pattern does not bear
  }
}

}  // namespace

std::optional<std::string> number_hint(const Pattern& pattern, const std::vector<std::string>& names) {
  std::vector<std::string> whole;
  std::vector<std::string> cut;
  for (const std::string& name : names) (pattern.cuts_number_in(name) ? cut : whole).push_back(name);
  if (cut.empty()) return std::nullopt;
  std::string hint = fmt::format("pattern {} also takes {}", in_quotes(pattern.text()), cut[0]);
  if (cut.size() > 1) hint += fmt::format("{} {}", cut.size() == 2 ? " and" : ",", cut[1]);
  if (cut.size() > 2) hint += fmt::format(" and {} more", cut.size() - 2);
  hint += ", where its match ends inside a number";
  const bool alternatives = pattern.text().find('|') != std::string::npos;
  const std::string closed = alternatives ? fmt::format("(?:{})", pattern.text()) : pattern.text();
  for (const char* addition : {"\\..*", "(?!\\d)"}) {
    if (!separates(closed + addition, whole, cut)) continue;
    return fmt::format("{}; to take whole numbers only, write '{}{}'", hint, closed, addition);
  }
  return hint + "; let the pattern say what follows the number";
}

}  // namespace amaxscope
