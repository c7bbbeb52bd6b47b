#include "launch/watch_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "collectives/exchange.hpp"
#include "core/terminal_text.hpp"
#include "launch/text.hpp"
#include "report/verdict_text.hpp"
#include "report/words.hpp"

namespace amaxscope::launch {

namespace {

using report::printable;

constexpr std::size_t kLabel = 14;
/// Ranks of one job are in the same iteration, or one goes ahead by the step it is in.
constexpr std::int64_t kBehind = 2;

const char* color_of(report::Outcome outcome) {
  switch (outcome) {
    case report::Outcome::kHealthy:
      return "\x1b[32m";
    case report::Outcome::kFound:
      return "\x1b[31m";
    default:
      return "\x1b[33m";
  }
}

/// Ranks by their state, in the order of the first.
std::vector<std::pair<std::string, std::vector<int>>> by_state(const RunView& view) {
  std::vector<std::pair<std::string, std::vector<int>>> states;
  for (const RankView& rank : view.ranks) {
    auto known = std::ranges::find(states, rank.state, &std::pair<std::string, std::vector<int>>::first);
    if (known == states.end()) known = states.insert(states.end(), {rank.state, {}});
    known->second.push_back(rank.rank);
  }
  return states;
}

std::int64_t newest_iteration(const RunView& view) {
  std::int64_t newest = 0;
  for (const RankView& rank : view.ranks) newest = std::max(newest, rank.iteration.value_or(0));
  return newest;
}

std::string progress(const RunView& view) {
  std::string text =
      view.iteration ? fmt::format("iteration {}", *view.iteration) : std::string("no step completed yet");
  if (view.iteration && view.steps) text += fmt::format(" (the last is {})", *view.steps - 1);
  if (view.rate) text += fmt::format(", {:.3g} a second", *view.rate);
  for (const char* name : {"loss", "grad_norm"}) {
    const auto found = view.scalars.find(name);
    if (found != view.scalars.end()) text += fmt::format(", {} {:.5g}", name, found->second.value);
  }
  return text;
}

std::string state_of_run(const RunView& view) {
  if (view.closed) return "closed";
  if (view.dead) return "its processes are gone and it was not closed: the job died or was killed";
  return "goes on";
}

std::string run_text(const RunView& view) {
  if (view.reading.runs.empty())
    return "no run.json yet: the job has not made its first step, or this is not its log directory";
  const report::RunInfo& run = view.reading.runs.back();
  std::string sizes;
  for (const auto& [dimension, size] : run.parallel) {
    if (size > 1) sizes += fmt::format(", {} {}", printable(dimension, 20), size);
  }
  const auto recipe = run.options.find("recipe");
  if (recipe != run.options.end()) sizes += ", recipe " + printable(recipe->second, 40);
  return fmt::format("{}, {} rank{}{}, {}", printable(run.run_id, 60), run.world_size,
                     run.world_size == 1 ? "" : "s", sizes, state_of_run(view));
}

std::string percent(const std::optional<double>& value) {
  return value ? fmt::format("{:.3g}", *value) : "-";
}

std::string worst_table(const RunView& view) {
  std::vector<std::vector<std::string>> rows = {
      {"worst codes", "tensor", "SQNR dB", "flushed %", "saturated %", "at"}};
  for (const WorstTensor& tensor : view.worst) {
    rows.push_back({printable(tensor.place.layer, 60), printable(tensor.place.tensor, 20),
                    fmt::format("{:.1f}", tensor.sqnr), percent(tensor.flushed), percent(tensor.saturated),
                    fmt::format("{}", tensor.iteration)});
  }
  return table(rows);
}

/// Lines cut at the width and the height; color stands around whole words only and takes no room.
std::string cut(const std::string& text, const Screen& screen) {
  std::istringstream lines(text);
  std::string all;
  std::size_t count = 0;
  for (std::string line; std::getline(lines, line) && count + 1 < screen.rows; ++count) {
    if (line.size() > screen.columns) line = line.substr(0, screen.columns - 1) + ">";
    all += line + "\n";
  }
  return all;
}

std::string labelled(const std::string& label, const std::string& text) {
  return fmt::format("{:<{}}{}\n", label, kLabel, text);
}

}  // namespace

std::string ranks_in_trouble(const RunView& view) {
  std::vector<std::string> parts;
  for (const auto& [state, ranks] : by_state(view)) {
    if (state != "detached" && state != "failed" && state != "stopped" && state != "gone") continue;
    std::string text = fmt::format("{}: {}", rank_list(ranks), state);
    const auto first = std::ranges::find(view.ranks, ranks.front(), &RankView::rank);
    if (!first->where.empty() && state != "gone") text += fmt::format(" ({})", printable(first->where, 200));
    parts.push_back(std::move(text));
  }
  std::vector<int> behind;
  std::int64_t last = 0;
  const std::int64_t newest = newest_iteration(view);
  for (const RankView& rank : view.ranks) {
    if (!rank.iteration || newest - *rank.iteration < kBehind) continue;
    if (behind.empty() || *rank.iteration < last) last = *rank.iteration;
    behind.push_back(rank.rank);
  }
  if (!behind.empty()) {
    parts.push_back(
        fmt::format("{}: behind, at iteration {} while others are at {}", rank_list(behind), last, newest));
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

std::string alarm_line(const Alarm& alarm) {
  std::string place = printable(alarm.layer, 120);
  if (!alarm.tensor.empty()) place += " " + printable(alarm.tensor, 40);
  return fmt::format("iteration {}: {}{}{}: {}", alarm.iteration, printable(alarm.check, 60),
                     place.empty() ? "" : " of ", place, printable(alarm.what, 300));
}

std::string watch_line(const RunView& view) {
  const std::string trouble = ranks_in_trouble(view);
  return fmt::format("{}; {}{}verdict: {}", progress(view), trouble, trouble.empty() ? "" : "; ",
                     view.verdict.sentence);
}

std::string watch_screen(const RunView& view, const std::string& name, const Screen& screen) {
  std::string text =
      labelled("watching", name) + labelled("run", run_text(view)) + labelled("progress", progress(view));
  std::string states;
  for (const auto& [state, ranks] : by_state(view)) {
    states += fmt::format("{}{} {}", states.empty() ? "" : ", ", ranks.size(), state);
  }
  const std::string trouble = ranks_in_trouble(view);
  text += labelled("ranks", states.empty() ? "no flight records" : states);
  if (!trouble.empty()) text += labelled("", trouble);
  std::istringstream verdict(report::as_short_text(view.verdict, name));
  for (std::string line; std::getline(verdict, line);) {
    if (!line.starts_with("more")) text += line + "\n";
  }
  if (view.alarm_count > 0) {
    text += labelled("alarms", fmt::format("{}, the newest last", view.alarm_count));
    for (const Alarm& alarm : view.recent) text += labelled("", alarm_line(alarm));
  }
  if (!view.worst.empty()) text += "\n" + worst_table(view);
  text = terminal_text(cut(text, screen));
  if (!screen.color) return text;
  const std::size_t at = text.find("\nverdict ");
  const std::size_t end = text.find('\n', at + 1);
  if (at != std::string::npos && end != std::string::npos) {
    text.insert(end, "\x1b[0m");
    text.insert(at + 1, color_of(view.verdict.outcome));
  }
  return text;
}

}  // namespace amaxscope::launch
