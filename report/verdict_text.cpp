#include "report/verdict_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "report/words.hpp"

namespace amaxscope::report {

namespace {

constexpr std::size_t kColumns = 110;
constexpr std::size_t kLabel = 14;
constexpr std::size_t kMostLines = 25;

/// Lines of "label   text", wrapped; the label stands once.
class Lines {
 public:
  void add(const std::string& label, const std::string& text, std::size_t most_lines = 2) {
    std::string rest = printable(text, 1000);
    for (std::size_t line = 0; line < most_lines && (!rest.empty() || line == 0); ++line) {
      std::size_t end = rest.size();
      if (end > kColumns - kLabel) {
        end = rest.rfind(' ', kColumns - kLabel);
        if (end == std::string::npos || end == 0) end = kColumns - kLabel;
      }
      std::string part = rest.substr(0, end);
      rest = end < rest.size() ? rest.substr(rest[end] == ' ' ? end + 1 : end) : "";
      if (line + 1 == most_lines && !rest.empty()) part = part.substr(0, kColumns - kLabel - 4) + " ...";
      lines_.push_back(fmt::format("{:<{}}{}", line == 0 ? label : "", kLabel, part));
    }
  }
  [[nodiscard]] std::string text() const {
    std::string all;
    for (std::size_t i = 0; i < std::min(lines_.size(), kMostLines); ++i) all += lines_[i] + "\n";
    return all;
  }

 private:
  std::vector<std::string> lines_;
};

std::string option(const RunInfo& run, const char* name) {
  const auto found = run.options.find(name);
  return found != run.options.end() ? printable(found->second, 60) : std::string();
}

std::string run_line(const Verdict& verdict) {
  const Reading& reading = verdict.reading;
  if (reading.runs.empty()) return "unknown: no description of it";
  const RunInfo& run = reading.runs.back();
  std::string sizes;
  for (const auto& [name, size] : run.parallel) {
    if (size > 1) sizes += fmt::format(", {} {}", printable(name, 20), size);
  }
  const std::string recipe = option(run, "recipe");
  const std::string covered =
      reading.first_step ? fmt::format("iterations {} to {}", *reading.first_step, *reading.last_step)
                         : std::string("no completed step");
  return fmt::format("{}, {} rank{}{}{}, {}, {} records{}", printable(run.run_id, 60), run.world_size,
                     run.world_size == 1 ? "" : "s", sizes, recipe.empty() ? "" : ", recipe " + recipe,
                     covered, verdict.records,
                     run.closed ? "" : "; not closed: it still goes on, or was cut off");
}

std::string heading(const Verdict& verdict) {
  if (verdict.outcome != Outcome::kFound) return verdict.sentence;
  return fmt::format("{} ({})", verdict.sentence, to_string(verdict.cause->confidence));
}

std::string where(const Cause& cause) {
  std::set<std::string> layers;
  for (const Place& place : cause.places) layers.insert(place.layer);
  std::string text = named(cause.places);
  if (layers.size() > 1) text += fmt::format(" ({} layers)", layers.size());
  text += "; " + named_ranks(cause.ranks);
  if (!cause.phase.empty()) text += "; " + printable(cause.phase, 20);
  if (!cause.gemms.empty()) text += fmt::format("; GEMM {}", fmt::join(cause.gemms, ", "));
  return text;
}

std::string since(const Cause& cause) {
  return fmt::format(
      "iteration {}{}", cause.iteration,
      cause.sampled ? " (of those at which it is measured; it may have begun after the one before)" : "");
}

std::string series_text(const Cause& cause) {
  std::string text;
  for (const Point& point : cause.series) {
    text += fmt::format("{}{:.4g} at {}", text.empty() ? "" : ", ", point.value, point.iteration);
  }
  return fmt::format("{}: {}", cause.series_name, text);
}

std::string moved_text(const std::vector<Moved>& moved) {
  constexpr std::size_t kShown = 4;
  std::string text;
  for (std::size_t i = 0; i < std::min(moved.size(), kShown); ++i) {
    text += fmt::format("{}{} {}", i == 0 ? "" : "; then ", moved[i].iteration, moved[i].what);
  }
  return moved.size() > kShown ? fmt::format("{}; and {} more", text, moved.size() - kShown) : text;
}

void add_reading(const Reading& reading, Lines& lines) {
  for (std::size_t i = 0; i < std::min<std::size_t>(reading.problems.size(), 2); ++i) {
    lines.add(i == 0 ? "records" : "", reading.problems[i], 1);
  }
  if (reading.unreadable > 0) {
    lines.add("records",
              fmt::format("{} of {} lines could not be read and are left out, the first is {}",
                          reading.unreadable, reading.lines, reading.first_unreadable),
              1);
  }
}

}  // namespace

std::string as_text(const Verdict& verdict) {
  Lines lines;
  lines.add("run", run_line(verdict), 2);
  lines.add("verdict", heading(verdict), 2);
  if (verdict.cause) {
    const Cause& cause = *verdict.cause;
    lines.add("kind", cause.kind, 1);
    lines.add("since", since(cause), 1);
    if (!cause.places.front().layer.empty()) lines.add("where", where(cause), 2);
    if (verdict.moved.size() > 1) lines.add("moved first", moved_text(verdict.moved), 2);
    if (!cause.series.empty()) lines.add("series", series_text(cause), 1);
    for (std::size_t i = 0; i < std::min<std::size_t>(cause.why.size(), 3); ++i)
      lines.add(i == 0 ? "why" : "", cause.why[i]);
    for (std::size_t i = 0; i < std::min<std::size_t>(cause.actions.size(), 2); ++i) {
      lines.add(i == 0 ? "do" : "", cause.actions[i]);
    }
    if (!cause.expect.empty()) lines.add("expect", cause.expect, 1);
    if (!verdict.last_good_state.empty()) lines.add("last good", verdict.last_good_state, 1);
  }
  add_reading(verdict.reading, lines);
  if (!verdict.clean.empty()) lines.add("clean", fmt::format("{}", fmt::join(verdict.clean, "; ")), 3);
  if (!verdict.not_measured.empty()) {
    lines.add("not measured", fmt::format("{}", fmt::join(verdict.not_measured, "; ")), 3);
  }
  if (!verdict.other_paths.empty()) {
    lines.add("other paths",
              fmt::format("debugging led these another way: {}", fmt::join(verdict.other_paths, "; ")), 1);
  }
  std::string text = lines.text();
  if (verdict.cause && !verdict.cause->yaml.empty())
    text += "\nto go on with (--config):\n\n" + verdict.cause->yaml;
  return text;
}

std::string as_line(const Verdict& verdict) {
  const bool said = verdict.outcome != Outcome::kFound && verdict.outcome != Outcome::kHealthy;
  const std::string outcome = said ? "" : fmt::format("{}: ", to_string(verdict.outcome));
  const std::string when = verdict.cause ? fmt::format(", since iteration {} ({})", verdict.cause->iteration,
                                                       to_string(verdict.cause->confidence))
                                         : "";
  return outcome + printable(verdict.sentence) + when;
}

std::string as_short_text(const Verdict& verdict, const std::string& log_dir) {
  Lines lines;
  lines.add("verdict", heading(verdict), 2);
  if (verdict.cause) {
    const Cause& cause = *verdict.cause;
    lines.add("since", since(cause), 1);
    if (!cause.places.front().layer.empty()) lines.add("where", where(cause), 2);
    if (!cause.why.empty()) lines.add("why", cause.why.front());
    if (!cause.actions.empty()) lines.add("do", cause.actions.front());
  }
  add_reading(verdict.reading, lines);
  if (!verdict.clean.empty()) lines.add("clean", fmt::format("{}", fmt::join(verdict.clean, "; ")), 2);
  if (!verdict.not_measured.empty()) {
    lines.add("not measured", fmt::format("{}", fmt::join(verdict.not_measured, "; ")), 2);
  }
  // The path is to be copied: it is not wrapped.
  return lines.text() + fmt::format("{:<{}}amaxscope report {} --text\n", "more", kLabel, log_dir);
}

}  // namespace amaxscope::report
