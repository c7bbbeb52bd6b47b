#include "launch/run_follower.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <set>
#include <tuple>
#include <utility>

#include "core/error.hpp"
#include "launch/flight_doctor.hpp"
#include "report/run_info.hpp"

namespace amaxscope::launch {

namespace {

constexpr std::size_t kRecentAlarms = 5;
constexpr std::size_t kWorstTensors = 5;
constexpr std::size_t kMostAlarms = 1000;  ///< kept from one look to the next

std::optional<std::int64_t> number_of(const report::RunInfo& run, const char* option) {
  const auto found = run.options.find(option);
  if (found == run.options.end()) return std::nullopt;
  std::int64_t number = 0;
  const char* const end = found->second.data() + found->second.size();
  return std::from_chars(found->second.data(), end, number).ptr == end && number > 0 ? std::optional(number)
                                                                                     : std::nullopt;
}

/// "2026-01-31T05:11:57.884Z"
std::optional<std::chrono::system_clock::time_point> time_of(const std::string& utc) {
  std::tm parts{};
  if (::strptime(utc.c_str(), "%Y-%m-%dT%H:%M:%S", &parts) == nullptr) return std::nullopt;
  return std::chrono::system_clock::from_time_t(::timegm(&parts));
}

std::optional<double> newest(const report::TensorSeries& tensor, const char* stat) {
  const report::Series* const series = tensor.find(stat);
  return series != nullptr ? std::optional(series->points().back().value) : std::nullopt;
}

std::vector<WorstTensor> worst_of(const report::Evidence& evidence) {
  std::vector<WorstTensor> worst;
  for (const auto& [place, tensor] : evidence.tensors()) {
    const report::Series* series = tensor.find("sqnr");
    const bool operand =
        place.tensor == "activation" || place.tensor == "weight" || place.tensor == "gradient";
    if (series == nullptr || tensor.recipe == "none" || !operand) continue;
    const report::Point& point = series->points().back();
    if (!std::isfinite(point.value)) continue;
    worst.push_back({.place = place,
                     .sqnr = point.value,
                     .iteration = point.iteration,
                     .flushed = newest(tensor, "flushed%"),
                     .saturated = newest(tensor, "saturated%")});
  }
  std::ranges::stable_sort(worst, {}, &WorstTensor::sqnr);
  if (worst.size() > kWorstTensors) worst.resize(kWorstTensors);
  return worst;
}

}  // namespace

/// Hands lines on to the evidence and notes what a person wants to see at once.
struct RunFollower::Visitor final : report::RecordVisitor {
  explicit Visitor(RunFollower& own) : follower(own) {}
  void record(const report::RecordLine& line) override { follower.evidence_.record(line); }
  void scalars(std::int64_t iteration, const std::map<std::string, double>& values) override {
    follower.evidence_.scalars(iteration, values);
    for (const auto& [name, value] : values) {
      if (!name.starts_with("checked/")) follower.scalars_[name] = {iteration, value};
    }
  }
  void finding(const report::FindingLine& line) override {
    const auto& found = follower.evidence_.findings();
    const bool known = found.contains(std::tuple(line.check, line.layer, line.tensor));
    follower.evidence_.finding(line);
    if (known) return;
    ++follower.alarm_count_;
    if (follower.fresh_.size() < kMostAlarms) {
      follower.fresh_.push_back({line.iteration, line.check, line.layer, line.tensor, line.what});
    }
  }
  RunFollower& follower;
};

RunFollower::RunFollower(std::filesystem::path log_dir) : log_dir_(std::move(log_dir)) {
  report::require_log_directory(log_dir_);
}

void RunFollower::read_metrics() {
  for (const auto& [rank, path] : report::metrics_files(log_dir_ / "metrics")) {
    std::unique_ptr<report::MetricsFile>& file = files_[rank];
    if (file == nullptr) {
      file = std::make_unique<report::MetricsFile>(path, "metrics/" + path.filename().string(), rank);
    }
  }
  Visitor visitor(*this);
  for (const auto& [rank, file] : files_) {
    while (file->read_step(reading_, visitor)) {
    }
  }
}

void RunFollower::look_at_ranks(RunView& view) const {
  std::vector<FlightRank> ranks;
  try {
    ranks = flight_ranks(log_dir_);
  } catch (const Error&) {
    return;  // none: the job keeps no flight records, or not yet
  }
  bool all_gone = true;
  for (const FlightRank& rank : ranks) {
    RankView& shown = view.ranks.emplace_back(
        RankView{.rank = rank.rank, .state = "unknown", .where = {}, .iteration = {}});
    if (!rank.record) {
      all_gone = false;
      continue;
    }
    shown.state = flight_state(rank);
    shown.where = rank.record->status.where;
    shown.iteration = rank.record->status.iteration;
    all_gone = all_gone && rank.process == ProcessState::kGone;
  }
  view.dead = all_gone && !view.closed;
}

RunView RunFollower::look(std::chrono::system_clock::time_point now) {
  RunView view;
  report::Reading description;
  report::read_run_file(log_dir_ / "run.json", description);
  view.closed = !description.runs.empty() && description.runs.back().closed;
  look_at_ranks(view);
  // After the description and the ranks: whatever a run that is closed by then has written is there to be
  // read.
  read_metrics();
  reading_.runs = description.runs;
  reading_.problems = description.problems;
  view.reading = reading_;
  view.verdict = report::judge(evidence_, reading_);
  view.scalars = scalars_;
  view.worst = worst_of(evidence_);
  view.alarms = std::exchange(fresh_, {});
  for (const Alarm& alarm : view.alarms) recent_.push_back(alarm);
  if (recent_.size() > kRecentAlarms) {
    recent_.erase(recent_.begin(), recent_.end() - static_cast<std::ptrdiff_t>(kRecentAlarms));
  }
  view.recent = recent_;
  view.alarm_count = alarm_count_;
  view.iteration = reading_.last_step;
  for (const RankView& rank : view.ranks) {
    // A rank that is in iteration n has completed n - 1.
    if (rank.iteration && *rank.iteration > 0)
      view.iteration = std::max(view.iteration.value_or(0), *rank.iteration - 1);
  }
  if (!description.runs.empty()) {
    const report::RunInfo& run = description.runs.back();
    if (view.closed && run.last_iteration) view.iteration = run.last_iteration;
    view.steps = number_of(run, "steps");
    const auto start = time_of(run.start);
    const std::int64_t done = view.iteration.value_or(run.first_iteration - 1) + 1 - run.first_iteration;
    const double seconds = start ? std::chrono::duration<double>(now - *start).count() : 0;
    if (before_ && view.iteration && *view.iteration >= before_->second && now > before_->first) {
      view.rate = static_cast<double>(*view.iteration - before_->second) /
                  std::chrono::duration<double>(now - before_->first).count();
    } else if (!view.closed && !view.dead && seconds >= 1 && done > 0) {
      view.rate = static_cast<double>(done) / seconds;
    }
  }
  if (view.iteration) before_.emplace(now, *view.iteration);
  return view;
}

}  // namespace amaxscope::launch
