#include "report/run_differences.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <sstream>

#include "report/words.hpp"

namespace amaxscope::report {

namespace {

/// Names of files, of where things are put, and how long it goes on: no reason for other numbers.
const std::set<std::string, std::less<>> kNoReason = {"save-dir",   "save-every", "watch-config",  "deadline",
                                                      "poll-every", "no-signals", "failure_policy"};
constexpr std::size_t kShown = 80;
constexpr double kExact = 0x1p-10;
constexpr double kLargestPower = 64;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(std::move(line));
  return lines;
}

void add(std::vector<HeaderDifference>& to, const std::string& what, const std::string& a,
         const std::string& b) {
  if (a != b)
    to.push_back({what, a.empty() ? "-" : printable(a, kShown), b.empty() ? "-" : printable(b, kShown)});
}

/// The first line that is not the same; whole texts are not for a table.
void add_config(std::vector<HeaderDifference>& to, const RunInfo& a, const RunInfo& b) {
  if (a.config_text == b.config_text) return;
  const std::vector<std::string> in_a = lines_of(a.config_text);
  const std::vector<std::string> in_b = lines_of(b.config_text);
  const auto parts = std::ranges::mismatch(in_a, in_b);
  const auto number = parts.in1 - in_a.begin() + 1;
  const auto shown = [](const auto& at, const auto& lines) {
    return at == lines.end() ? std::string("(its end)") : *at;
  };
  add(to, fmt::format("debug config, from line {}", number), shown(parts.in1, in_a), shown(parts.in2, in_b));
}

template <class Map>
std::set<std::string> names_of(const Map& a, const Map& b) {
  std::set<std::string> names;
  for (const auto& [name, value] : a) names.insert(name);
  for (const auto& [name, value] : b) names.insert(name);
  return names;
}

struct Candidate {
  double value = 0;
  std::string name;
};

void add_numbers(const RunInfo& run, const char* whose, std::vector<Candidate>& candidates) {
  const auto add_one = [&](const std::string& name, double value) {
    if (value <= 1 || value > 0x1p40) return;
    candidates.push_back({value, fmt::format("the {} of {} ({:g})", name, whose, value)});
    candidates.push_back(
        {std::sqrt(value), fmt::format("the square root of the {} of {} ({:g})", name, whose, value)});
  };
  for (const char* name : {"tp", "dp_cp", "pp"}) {
    const auto found = run.parallel.find(name);
    if (found != run.parallel.end()) add_one(std::string(name) + " size", static_cast<double>(found->second));
  }
  for (const char* name :
       {"micro-batches", "experts", "top-k", "heads", "layers", "batch", "seq", "hidden"}) {
    const auto found = run.options.find(name);
    if (found == run.options.end()) continue;
    double value = 0;
    const char* const end = found->second.data() + found->second.size();
    if (std::from_chars(found->second.data(), end, value).ptr == end) add_one(name, value);
  }
}

/// What differs between the runs speaks before what both have, then powers of two.
std::vector<Candidate> candidates_of(const Reading& a, const Reading& b) {
  std::vector<Candidate> candidates;
  if (!a.runs.empty() && !b.runs.empty()) {
    const RunInfo& run_a = a.runs.back();
    const RunInfo& run_b = b.runs.back();
    for (const auto& [name, size] : run_a.parallel) {
      const auto other = run_b.parallel.find(name);
      if (other == run_b.parallel.end() || other->second == size || size < 1 || other->second < 1) continue;
      const double ratio = static_cast<double>(other->second) / static_cast<double>(size);
      const double larger = std::max(ratio, 1 / ratio);
      candidates.push_back(
          {larger, fmt::format("the ratio of the {} sizes ({} and {})", name, size, other->second)});
      candidates.push_back(
          {std::sqrt(larger), fmt::format("the square root of the ratio of the {} sizes ({} and {})", name,
                                          size, other->second)});
    }
    add_numbers(run_a, "A", candidates);
    add_numbers(run_b, "B", candidates);
  }
  return candidates;
}

std::string name_of(double ratio, const std::vector<Candidate>& candidates) {
  const double larger = std::max(ratio, 1 / ratio);
  const bool is_power = std::abs(std::log2(larger) - std::round(std::log2(larger))) < kExact;
  std::string name;
  for (const Candidate& candidate : candidates) {
    if (std::abs(larger / candidate.value - 1) < kExact) {
      name = candidate.name;
      break;
    }
  }
  if (is_power && larger > 1.5 && larger < std::exp2(kLargestPower)) {
    const std::string power = fmt::format(
        "a power of two (2^{:.0f}), as a scale that is off or a loss scale has", std::log2(ratio));
    name = name.empty() ? power : fmt::format("{}, or {}", name, power);
  }
  return name;
}

}  // namespace

std::vector<HeaderDifference> header_differences(const Reading& a, const Reading& b) {
  std::vector<HeaderDifference> found;
  if (a.runs.empty() || b.runs.empty()) return found;
  const RunInfo& run_a = a.runs.back();
  const RunInfo& run_b = b.runs.back();
  const auto number = [](std::int64_t value) { return fmt::format("{}", value); };
  add(found, "ranks", number(run_a.world_size), number(run_b.world_size));
  for (const std::string& name : names_of(run_a.parallel, run_b.parallel)) {
    const auto size = [&](const RunInfo& run) {
      const auto at = run.parallel.find(name);
      return at != run.parallel.end() ? number(at->second) : std::string();
    };
    add(found, "size of " + name, size(run_a), size(run_b));
  }
  for (const std::string& name : names_of(run_a.options, run_b.options)) {
    if (kNoReason.contains(name) || run_a.parallel.contains(name)) continue;
    const auto value = [&](const RunInfo& run) {
      const auto at = run.options.find(name);
      return at != run.options.end() ? at->second : std::string();
    };
    add(found, "option " + name, value(run_a), value(run_b));
  }
  add_config(found, run_a, run_b);
  const auto joined = [](const std::vector<std::string>& list) {
    std::string text;
    for (const std::string& each : list) text += (text.empty() ? "" : "; ") + each;
    return text;
  };
  add(found, "alters numerics", joined(run_a.alters_numerics), joined(run_b.alters_numerics));
  add(found, "first iteration", number(run_a.first_iteration), number(run_b.first_iteration));
  return found;
}

std::optional<NamedRatio> named_ratio(const std::vector<Departure>& departures, const Reading& a,
                                      const Reading& b) {
  const std::vector<Candidate> candidates = candidates_of(a, b);
  std::map<std::string, NamedRatio> found;
  std::size_t asked = 0;
  for (const Departure& departure : departures) {
    const int degree = degree_of(base_name(departure.stat));
    if (degree == 0) continue;
    ++asked;
    const double ratio = std::pow(std::abs(departure.b / departure.a), 1.0 / degree);
    if (!std::isfinite(ratio) || ratio <= 0) continue;
    const std::string name = name_of(ratio, candidates);
    if (name.empty()) continue;
    NamedRatio& named = found[name];
    named.ratio = ratio;
    named.name = name;
    named.stats.push_back(departure.stat);
  }
  const auto most = std::ranges::max_element(
      found, [](const auto& x, const auto& y) { return x.second.stats.size() < y.second.stats.size(); });
  if (most == found.end() || 2 * most->second.stats.size() <= asked) return std::nullopt;
  return most->second;
}

}  // namespace amaxscope::report
