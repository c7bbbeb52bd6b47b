#include "report/diff_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "report/json_values.hpp"
#include "report/words.hpp"

namespace amaxscope::report {

namespace {

constexpr std::size_t kColumns = 110;
constexpr std::size_t kLabel = 14;  // as a verdict has it
constexpr std::size_t kShownHeader = 10;
constexpr std::size_t kShownFirst = 6;
constexpr std::size_t kShownFollows = 10;
constexpr std::size_t kListedInJson = 1000;

std::string line(const std::string& label, const std::string& text) {
  std::string rest = printable(text, 1000);
  std::string all;
  bool first = true;
  do {
    std::size_t end = rest.size();
    if (end > kColumns - kLabel) {
      end = rest.rfind(' ', kColumns - kLabel);
      if (end == std::string::npos || end == 0) end = kColumns - kLabel;
    }
    all += fmt::format("{:<{}}{}\n", first ? label : "", kLabel, rest.substr(0, end));
    rest = end < rest.size() ? rest.substr(rest[end] == ' ' ? end + 1 : end) : "";
    first = false;
  } while (!rest.empty());
  return all;
}

std::string run_text(const Reading& reading, const std::string& name) {
  if (reading.runs.empty()) return fmt::format("{}: no description of the run", name);
  const RunInfo& run = reading.runs.back();
  std::string sizes;
  for (const auto& [dimension, size] : run.parallel) {
    if (size > 1) sizes += fmt::format(", {} {}", printable(dimension, 20), size);
  }
  const std::string covered =
      reading.first_step ? fmt::format("iterations {} to {}", *reading.first_step, *reading.last_step)
                         : std::string("no completed step");
  return fmt::format("{}: {}, {} rank{}{}, {}{}", name, printable(run.run_id, 60), run.world_size,
                     run.world_size == 1 ? "" : "s", sizes, covered, run.closed ? "" : ", not closed");
}

std::string place_text(const Departure& departure) {
  std::string text = printable(departure.place.layer, 120) + " " + printable(departure.place.tensor, 40);
  return departure.phase.empty() ? text : text + " (" + printable(departure.phase, 20) + ")";
}

std::string excess_text(const Departure& departure) {
  const double excess = departure.excess();
  return std::isfinite(excess) ? fmt::format("{:.3g}x", excess) : std::string("-");
}

std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string one;
    for (std::size_t i = 0; i < row.size(); ++i) one += fmt::format("{:<{}}  ", row[i], widths[i]);
    one.erase(one.find_last_not_of(' ') + 1);
    text += one + "\n";
  }
  return text;
}

std::string departures(const std::vector<const Departure*>& list) {
  std::vector<std::vector<std::string>> rows = {
      {"iteration", "layer", "tensor", "statistic", "A", "B", "apart", "tolerance", "excess"}};
  for (const Departure* each : list) {
    rows.push_back({fmt::format("{}", each->iteration), printable(each->place.layer, 60),
                    printable(each->place.tensor, 20), printable(each->stat, 40),
                    fmt::format("{:.6g}", each->a), fmt::format("{:.6g}", each->b),
                    fmt::format("{:.2g}", each->distance), fmt::format("{:.2g}", each->tolerance),
                    excess_text(*each)});
  }
  return table(rows);
}

std::string tolerance_text(const Diff& diff) {
  if (diff.measured_noise) {
    return fmt::format("tolerance: {} times what the perturbed runs differ from A", RoundingNoise::kMargin);
  }
  return fmt::format(
      "tolerance: {} times what rounding does in the reference trainer ({}); --perturbed measures it on this "
      "job",
      RoundingNoise::kMargin, to_string(diff.precision));
}

std::string ratio_text(const NamedRatio& ratio) {
  return fmt::format("B is {:.3f} times A ({}): {}", ratio.ratio, fmt::join(ratio.stats, ", "), ratio.name);
}

nlohmann::ordered_json to_json(const std::vector<Departure>& list) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < std::min(list.size(), kListedInJson); ++i) {
    const Departure& each = list[i];
    json.push_back({{"iteration", each.iteration},
                    {"layer", each.place.layer},
                    {"tensor", each.place.tensor},
                    {"phase", each.phase},
                    {"stat", each.stat},
                    {"a", json_of(each.a)},
                    {"b", json_of(each.b)},
                    {"distance", json_of(each.distance)},
                    {"tolerance", json_of(each.tolerance)}});
  }
  return json;
}

void add_header(const Diff& diff, std::string& text) {
  for (std::size_t i = 0; i < std::min(diff.header.size(), kShownHeader); ++i) {
    const HeaderDifference& each = diff.header[i];
    text += line(i == 0 ? "told" : "", fmt::format("{}: {} in A, {} in B", each.what, each.a, each.b));
  }
  if (diff.header.size() > kShownHeader) {
    text += line("", fmt::format("and {} more", diff.header.size() - kShownHeader));
  }
  if (diff.header.empty()) text += line("told", "the same options and config");
}

void add_where(const Diff& diff, std::string& text) {
  const Departure& first = diff.first.front();
  if (diff.ratio) text += line("ratio", ratio_text(*diff.ratio));
  std::vector<const Departure*> here;
  for (const Departure& each : diff.first) {
    if (each.place == first.place && each.phase == first.phase && here.size() < kShownFirst)
      here.push_back(&each);
  }
  text += "\nwhere they part, the clearest first\n" + departures(here);
  std::vector<const Departure*> after;
  for (std::size_t i = 0; i < std::min(diff.follows.size(), kShownFollows); ++i)
    after.push_back(&diff.follows[i]);
  if (after.empty()) return;
  text += "\nwhat follows, in the order in which a step computes\n" + departures(after);
  if (diff.follows.size() > kShownFollows)
    text += fmt::format("and {} more\n", diff.follows.size() - kShownFollows);
}

}  // namespace

std::string as_sentence(const Diff& diff, const std::string& in_a, const std::string& in_b) {
  if (diff.nothing_compared())
    return "nothing to compare: the runs have no value of the same tensor and iteration";
  if (!diff.differs()) return "same: no statistic differs by more than rounding explains";
  if (diff.first.empty()) {
    return fmt::format(
        "the tensors that both have are the same, but {} parts at iteration {}: {:.9g} and {:.9g}",
        diff.scalars.front().stat, diff.scalars.front().iteration, diff.scalars.front().a,
        diff.scalars.front().b);
  }
  const Departure& first = diff.first.front();
  return fmt::format("they part at iteration {}: {}, {} is {:.6g} {} and {:.6g} {}", first.iteration,
                     place_text(first), printable(first.stat, 40), first.a, in_a, first.b, in_b);
}

std::string as_text(const Diff& diff, const std::string& name_a, const std::string& name_b) {
  std::string text = line("A", run_text(diff.a, name_a)) + line("B", run_text(diff.b, name_b));
  add_header(diff, text);
  std::string compared =
      fmt::format("{} iterations, {} tensors, {} values", diff.iterations, diff.places, diff.values);
  if (diff.only_a + diff.only_b > 0) {
    compared += fmt::format("; {} iterations are in A only, {} in B only", diff.only_a, diff.only_b);
  }
  text += line("compared", compared + "; " + tolerance_text(diff));
  for (const std::string& skipped : diff.skipped) text += line("not", skipped);
  for (const auto& [name, reading] : {std::pair("A", &diff.a), std::pair("B", &diff.b)}) {
    for (const std::string& problem : reading->problems)
      text += line("records", fmt::format("{}: {}", name, problem));
    if (reading->unreadable > 0) {
      text += line("records", fmt::format("{}: {} lines could not be read, the first is {}", name,
                                          reading->unreadable, reading->first_unreadable));
    }
  }
  text += line("verdict", as_sentence(diff));
  if (!diff.barely.empty()) {
    const Departure& worst = *std::ranges::max_element(diff.barely, {}, &Departure::excess);
    text += line("barely",
                 fmt::format("{} value{} before that or without more, the furthest at iteration {}: {} {}, "
                             "{} of its tolerance: not taken for a difference",
                             diff.barely.size(), diff.barely.size() == 1 ? "" : "s", worst.iteration,
                             place_text(worst), printable(worst.stat, 40), excess_text(worst)));
  }
  for (const Departure& scalar : diff.scalars) {
    if (diff.first.empty() && &scalar == &diff.scalars.front()) continue;
    text += line(scalar.stat, fmt::format("parts at iteration {}: {:.9g} in A, {:.9g} in B", scalar.iteration,
                                          scalar.a, scalar.b));
  }
  if (!diff.first.empty()) {
    text += line("apart", fmt::format("{} of {} tensors, sooner or later", diff.places_apart, diff.places));
    add_where(diff, text);
  }
  return text;
}

std::string as_short_text(const Diff& diff, const std::string& name_b) {
  std::string text = line("against", fmt::format("{}: {}", name_b, as_sentence(diff, "here", "there")));
  if (diff.ratio) text += line("", ratio_text(*diff.ratio));
  for (std::size_t i = 0; i < std::min<std::size_t>(diff.header.size(), 4); ++i) {
    text += line(
        "", fmt::format("{}: {} here, {} there", diff.header[i].what, diff.header[i].a, diff.header[i].b));
  }
  return text;
}

std::string as_json(const Diff& diff) {
  nlohmann::ordered_json header = nlohmann::ordered_json::array();
  for (const HeaderDifference& each : diff.header)
    header.push_back({{"what", each.what}, {"a", each.a}, {"b", each.b}});
  nlohmann::ordered_json noise = nlohmann::ordered_json::array();
  for (const auto& [key, value] : diff.noise) {
    noise.push_back({{"tensor", key.first}, {"stat", key.second}, {"distance", json_of(value)}});
  }
  nlohmann::ordered_json ratio;
  if (diff.ratio)
    ratio = {{"ratio", diff.ratio->ratio}, {"name", diff.ratio->name}, {"stats", diff.ratio->stats}};
  const nlohmann::ordered_json json = {{"version", Diff::kVersion},
                                       {"outcome", diff.nothing_compared() ? "nothing compared"
                                                   : diff.differs()        ? "differs"
                                                                           : "same"},
                                       {"sentence", as_sentence(diff)},
                                       {"iterations", diff.iterations},
                                       {"iterations_in_a_only", diff.only_a},
                                       {"iterations_in_b_only", diff.only_b},
                                       {"values", diff.values},
                                       {"tensors", diff.places},
                                       {"tensors_apart", diff.places_apart},
                                       {"not_compared", diff.skipped},
                                       {"told", header},
                                       {"tolerance_from", diff.measured_noise ? "perturbed runs" : "table"},
                                       {"first", to_json(diff.first)},
                                       {"barely", to_json(diff.barely)},
                                       {"ratio", ratio},
                                       {"follows", to_json(diff.follows)},
                                       {"scalars", to_json(diff.scalars)},
                                       {"noise", noise}};
  return json.dump(2, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace amaxscope::report
