#include "runtime/config/diagnostics.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <numeric>

#include "core/error.hpp"

namespace amaxscope {

namespace {

std::string lower(std::string_view text) {
  std::string result(text.substr(0, 200));  // words longer than any name of ours only cost time
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

// Optimal string alignment: insertions, deletions, substitutions and swaps of neighbours.
std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t cost = a[i - 1] == b[j - 1] ? 0 : 1;
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + cost});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    before.swap(last);
    last.swap(row);
  }
  return last.back();
}

struct Closeness {
  std::size_t score;
  std::size_t distance;
  bool close;
};

// "frequency" is far from "freq" in edits but plainly means it, hence the weight of a common prefix.
Closeness closeness(std::string_view word, std::string_view candidate) {
  const std::string a = lower(word);
  const std::string b = lower(candidate);
  const std::size_t distance = edit_distance(a, b);
  const std::size_t shorter = std::min(a.size(), b.size());
  const std::size_t longer = std::max(a.size(), b.size());
  const bool prefix = shorter >= 3 && a.compare(0, shorter, b, 0, shorter) == 0;
  const std::size_t score = prefix ? std::min(distance, 1 + distance / 4) : distance;
  return {score, distance, prefix || distance <= std::max<std::size_t>(1, longer / 3)};
}

bool before(const SourcePosition& a, const SourcePosition& b) {
  return a.line != b.line ? a.line < b.line : a.column < b.column;
}

}  // namespace

void Diagnostics::add(Entry entry) {
  if (faults_.contains({entry.position.line, entry.position.column})) return;
  if (!seen_.insert((entry.is_error ? "E" : "W") + format(entry)).second) return;
  entries_.push_back(std::move(entry));
}

void Diagnostics::error(SourcePosition position, std::string message) {
  add({true, position, std::move(message)});
}

void Diagnostics::warn(SourcePosition position, std::string message) {
  add({false, position, std::move(message)});
}

void Diagnostics::fault(SourcePosition position, std::string message) {
  add({true, position, std::move(message)});
  faults_.insert({position.line, position.column});
}

bool Diagnostics::has_errors() const noexcept {
  return std::any_of(entries_.begin(), entries_.end(), [](const Entry& entry) { return entry.is_error; });
}

std::string Diagnostics::format(const Entry& entry) const {
  if (entry.position.line == 0) return fmt::format("{}: {}", source_, entry.message);
  return fmt::format("{}:{}:{}: {}", source_, entry.position.line, entry.position.column, entry.message);
}

void Diagnostics::throw_if_errors() const {
  std::vector<Entry> errors;
  std::copy_if(entries_.begin(), entries_.end(), std::back_inserter(errors),
               [](const Entry& entry) { return entry.is_error; });
  if (errors.empty()) return;
  std::stable_sort(errors.begin(), errors.end(),
                   [](const Entry& a, const Entry& b) { return before(a.position, b.position); });
  std::string text;
  for (const Entry& entry : errors) {
    if (!text.empty()) text += '\n';
    text += format(entry);
  }
  throw Error(ErrorCode::kConfig, text);
}

std::vector<std::string> nearest(std::string_view word, const std::vector<std::string>& candidates,
                                 std::size_t n) {
  std::vector<std::pair<Closeness, std::string>> ranked;
  ranked.reserve(candidates.size());
  for (const std::string& candidate : candidates) ranked.emplace_back(closeness(word, candidate), candidate);
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first.score, a.first.distance) < std::pair(b.first.score, b.first.distance);
  });
  std::vector<std::string> result;
  for (std::size_t i = 0; i < std::min(n, ranked.size()); ++i) result.push_back(std::move(ranked[i].second));
  return result;
}

std::string suggestion(std::string_view word, const std::vector<std::string>& candidates) {
  if (candidates.empty()) return "";
  const std::string best = nearest(word, candidates, 1).front();
  if (closeness(word, best).close) return fmt::format("; did you mean \"{}\"?", best);
  return fmt::format("; allowed: {}", fmt::join(candidates, ", "));
}

std::string in_quotes(std::string_view word) {
  constexpr std::size_t kLongest = 80;
  std::string text = "\"";
  std::size_t shown = 0;
  for (; shown < word.size(); ++shown) {
    const auto byte = static_cast<unsigned char>(word[shown]);
    const bool starts_character = (byte & 0xC0) != 0x80;  // never cut inside a UTF-8 sequence
    if (shown >= kLongest && starts_character) break;
    if (byte == '\n') {
      text += "\\n";
    } else if (byte == '\t') {
      text += "\\t";
    } else if (byte < 0x20 || byte == 0x7F) {
      text += fmt::format("\\x{:02x}", byte);
    } else {
      text += word[shown];
    }
  }
  text += shown < word.size() ? "...\"" : "\"";
  return text;
}

}  // namespace amaxscope
