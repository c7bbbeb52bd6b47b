#include "report/diff.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <tuple>

#include "core/error.hpp"
#include "report/run_differences.hpp"
#include "report/run_steps.hpp"

namespace amaxscope::report {

namespace {

constexpr std::size_t kMostPlaces = 50'000;
constexpr std::size_t kMostAtFirst = 400;
constexpr std::string_view kComparisons = "checked/";

/// A record's name in both runs: of a summand also the rank it is of.
struct Key {
  std::string layer;
  std::string tensor;
  std::string phase;
  std::int64_t rank = -1;  ///< -1: of the whole tensor
  friend auto operator<=>(const Key&, const Key&) = default;
};

using Records = std::map<Key, RecordLine>;

Records keyed(Step& step) {
  Records records;
  for (RecordLine& line : step.records) {
    Key key{line.layer, line.tensor, line.phase, -1};
    if (line.layout == "partial" && !line.group.empty()) key.rank = line.group.front();
    records.try_emplace(std::move(key), std::move(line));  // of several ranks' copies the lowest rank's
  }
  return records;
}

std::int64_t size_of(const Reading& reading, const char* name) {
  if (reading.runs.empty()) return 1;
  const auto found = reading.runs.back().parallel.find(name);
  return found != reading.runs.back().parallel.end() ? found->second : 1;
}

/// The number in a layer's name, after which a step gets to it.
std::int64_t number_in(const std::string& layer) {
  const std::size_t at = layer.find_first_of("0123456789");
  if (at == std::string::npos)
    return layer.starts_with("embedding") ? -1 : std::numeric_limits<std::int64_t>::max();
  std::int64_t number = 0;
  for (std::size_t i = at; i < layer.size() && layer[i] >= '0' && layer[i] <= '9' && i < at + 15; ++i) {
    number = number * 10 + (layer[i] - '0');
  }
  return number;
}

/// When, in a step, a tensor is there: evaluation, forward in the order of the layers, backward against it,
/// then the optimizer.
class StepOrder {
 public:
  using Rank = std::tuple<int, std::int64_t, std::int64_t, int>;

  void note(const RecordLine& line) {
    if (seen_.size() < kMostPlaces) seen_.try_emplace(line.layer, static_cast<std::int64_t>(seen_.size()));
  }
  [[nodiscard]] Rank of(const Place& place, const std::string& phase) const {
    const int part = part_of(place, phase);
    const std::int64_t sign = part == 2 ? -1 : 1;
    const auto seen = seen_.find(place.layer);
    const std::int64_t order = seen != seen_.end() ? seen->second : 0;
    return {part, sign * number_in(place.layer), sign * order, tensor_rank(place.tensor)};
  }

 private:
  static int part_of(const Place& place, const std::string& phase) {
    if (place.tensor == "parameter" || place.tensor == "update") return 3;
    if (phase == "eval") return 0;
    return phase == "forward" ? 1 : 2;
  }
  static int tensor_rank(const std::string& tensor) {
    static constexpr std::array<std::string_view, 7> kOrder = {"weight", "activation", "output", "gradient",
                                                               "dgrad",  "wgrad",      "update"};
    return static_cast<int>(std::ranges::find(kOrder, tensor) - kOrder.begin());
  }
  std::map<std::string, std::int64_t> seen_;
};

class Comparison {
 public:
  Comparison(RoundingNoise& noise, Diff& diff) : noise_(noise), diff_(diff) {}

  /// What rounding did between A and a run of the same that was perturbed.
  void measure(std::int64_t iteration, const Records& a, Step& other,
               const std::map<std::string, double>& scalars_a) {
    if (!a.empty()) noise_.begin_step(iteration);
    counts_skipped_ = false;
    const Records b = keyed(other);
    for (const auto& [key, record] : a) {
      const auto found = b.find(key);
      if (found == b.end()) continue;
      for_each_statistic(record, found->second,
                         [&](const std::string& stat, Measure measure, double distance) {
                           noise_.measure(record.tensor, base_name(stat), distance);
                           static_cast<void>(measure);
                         });
    }
    for (const auto& [name, value] : scalars_a) {
      const auto found = other.scalars.find(name);
      if (found == other.scalars.end() || name.starts_with(kComparisons)) continue;
      noise_.measure("", name, distance(measure_of(name), value, found->second, {}, {}));
    }
  }

  void compare(std::int64_t iteration, const Records& a, Step& step_b,
               const std::map<std::string, double>& scalars_a) {
    counts_skipped_ = true;
    const Records b = keyed(step_b);
    for (const auto& [key, record] : a) {
      order_.note(record);
      if (const char* why = incomparable(record)) {
        ++skipped_[why];
        continue;
      }
      const auto found = b.find(key);
      if (found == b.end()) {
        only_a_.insert(record.layer + " " + record.tensor);
        continue;
      }
      compare(iteration, record, found->second);
    }
    for (const auto& [key, record] : b) {
      if (incomparable(record) == nullptr && !a.contains(key))
        only_b_.insert(record.layer + " " + record.tensor);
    }
    compare_scalars(iteration, scalars_a, step_b.scalars);
  }

  void finish() {
    for (const auto& [why, count] : skipped_) diff_.skipped.push_back(fmt::format("{} times {}", count, why));
    only("A", only_a_);
    only("B", only_b_);
    settle_first();
    diff_.places = places_.size();
    diff_.places_apart = worst_.size();
    const auto before = [&](const Departure& x, const Departure& y) {
      return std::tuple(x.iteration, order_.of(x.place, x.phase)) <
             std::tuple(y.iteration, order_.of(y.place, y.phase));
    };
    for (const auto& [place, departure] : worst_) diff_.follows.push_back(departure);
    std::ranges::stable_sort(diff_.follows, before);
    std::ranges::stable_sort(at_first_, before);
    diff_.first = std::move(at_first_);
    std::erase_if(diff_.follows, [&](const Departure& each) {
      return !diff_.first.empty() && each.place == diff_.first.front().place &&
             each.phase == diff_.first.front().phase;
    });
    if (diff_.first.empty()) return;
    std::vector<Departure> of_first;
    for (const Departure& each : diff_.first) {
      if (each.place == diff_.first.front().place && each.phase == diff_.first.front().phase)
        of_first.push_back(each);
    }
    diff_.ratio = named_ratio(of_first, diff_.a, diff_.b);
  }

 private:
  using PlacePhase = std::pair<Place, std::string>;

  /// Null: it can be compared.
  [[nodiscard]] const char* incomparable(const RecordLine& record) const {
    if (record.layout == "partial" && !split_alike()) {
      return "partial sums, each of one rank: they are other sums where tp, pp or dp are others";
    }
    if (record.tensor == "wgrad" && size_of(diff_.a, "dp_cp") != size_of(diff_.b, "dp_cp")) {
      return "wgrad before it is summed over dp: of one replica's part of the batch";
    }
    return nullptr;
  }

  [[nodiscard]] bool split_alike() const {
    return size_of(diff_.a, "tp") == size_of(diff_.b, "tp") &&
           size_of(diff_.a, "pp") == size_of(diff_.b, "pp") &&
           size_of(diff_.a, "dp_cp") == size_of(diff_.b, "dp_cp");
  }

  template <class Take>
  void for_each_statistic(const RecordLine& a, const RecordLine& b, const Take& take) {
    for (const auto& [stat, value] : a.stats) {
      const auto found = b.stats.find(stat);
      if (found == b.stats.end()) continue;
      // Each rank of a split tensor draws numbers of its own.
      if (a.tensor == "gradient" && stat.starts_with("nvfp4_") && !split_alike()) {
        if (counts_skipped_)
          ++skipped_
              ["what-if NVFP4 of gradients: rounded at random, with other draws where tp, pp or dp are "
               "others"];
        continue;
      }
      const Measure measure = measure_of(base_name(stat));
      if (measure == Measure::kNone) continue;
      take(stat, measure, distance(measure, value, found->second, a.stats, b.stats));
    }
  }

  void compare(std::int64_t iteration, const RecordLine& a, const RecordLine& b) {
    const PlacePhase place{{a.layer, a.tensor}, a.phase};
    if (places_.size() < kMostPlaces) places_.insert(place);
    std::vector<Departure> apart;
    for_each_statistic(a, b, [&](const std::string& stat, Measure measure, double distance) {
      ++diff_.values;
      const double tolerance = noise_.tolerance(a.tensor, base_name(stat), measure, iteration);
      if (!(distance > tolerance)) return;
      apart.push_back(
          {iteration, place.first, a.phase, stat, a.stats.at(stat), b.stats.at(stat), distance, tolerance});
    });
    if (apart.empty()) return;
    std::ranges::stable_sort(apart, std::greater<>(), &Departure::excess);
    if (worst_.size() < kMostPlaces) worst_.try_emplace(place, apart.front());
    apart_ += apart.size();
    if (!at_first_.empty() && at_first_.front().iteration != iteration) {
      if (!is_barely(at_first_)) return;
      std::ranges::move(at_first_, std::back_inserter(diff_.barely));
      at_first_.clear();
    }
    for (Departure& each : apart) {
      if (at_first_.size() < kMostAtFirst) at_first_.push_back(std::move(each));
    }
  }

  static bool is_barely(const std::vector<Departure>& of_an_iteration) {
    constexpr std::size_t kFew = 2;
    return of_an_iteration.size() <= kFew && std::ranges::all_of(of_an_iteration, [](const Departure& each) {
             return each.excess() < Diff::kClear;
           });
  }

  /// Runs that are never clearly apart are the same when few values are apart at all.
  void settle_first() {
    if (at_first_.empty() || !is_barely(at_first_)) return;
    constexpr std::uint64_t kValuesForOne = 2000;
    std::ranges::move(at_first_, std::back_inserter(diff_.barely));
    at_first_.clear();
    if (apart_ <= 1 + diff_.values / kValuesForOne && diff_.scalars.empty()) {
      worst_.clear();
      return;
    }
    const std::int64_t iteration = diff_.barely.front().iteration;
    for (const Departure& each : diff_.barely) {
      if (each.iteration == iteration) at_first_.push_back(each);
    }
    diff_.barely.clear();
  }

  void compare_scalars(std::int64_t iteration, const std::map<std::string, double>& a,
                       const std::map<std::string, double>& b) {
    for (const auto& [name, value] : a) {
      const auto found = b.find(name);
      if (found == b.end() || name.starts_with(kComparisons)) continue;
      ++diff_.values;
      const Measure measure = measure_of(name);
      const double apart = distance(measure, value, found->second, {}, {});
      const double tolerance = noise_.tolerance("", name, measure, iteration);
      if (!(apart > tolerance) || !scalars_apart_.insert(name).second) continue;
      diff_.scalars.push_back({iteration, {}, {}, name, value, found->second, apart, tolerance});
    }
  }

  void only(const char* run, const std::set<std::string>& names) {
    constexpr std::size_t kShown = 3;
    if (names.empty()) return;
    std::string text;
    std::size_t shown = 0;
    for (const std::string& name : names) {
      if (shown++ == kShown) break;
      text += (text.empty() ? "" : ", ") + name;
    }
    diff_.skipped.push_back(fmt::format("{} tensors of iterations that both have are in {} only: {}{}",
                                        names.size(), run, text, names.size() > kShown ? ", ..." : ""));
  }

  RoundingNoise& noise_;
  Diff& diff_;
  StepOrder order_;
  std::set<PlacePhase> places_;
  std::uint64_t apart_ = 0;                ///< values, over all iterations
  std::map<PlacePhase, Departure> worst_;  ///< at its first iteration
  std::vector<Departure> at_first_;
  std::map<std::string, std::uint64_t> skipped_;
  bool counts_skipped_ = true;  ///< not while noise is measured
  std::set<std::string> only_a_;
  std::set<std::string> only_b_;
  std::set<std::string> scalars_apart_;
};

/// A run beside A: brought to A's iteration.
class Follower {
 public:
  explicit Follower(const std::filesystem::path& log_dir) : steps_(log_dir), step_(steps_.next()) {}
  /// The step of this iteration, if there is one; earlier ones are counted and left behind.
  Step* at(std::int64_t iteration) {
    while (step_ && step_->iteration < iteration) {
      ++passed_;
      step_ = steps_.next();
    }
    return step_ && step_->iteration == iteration ? &*step_ : nullptr;
  }
  void leave() { step_ = steps_.next(); }
  /// How many steps were left behind, up to this iteration.
  std::uint64_t rest(std::optional<std::int64_t> until) {
    for (; step_ && !(until && step_->iteration > *until); step_ = steps_.next()) ++passed_;
    return passed_;
  }
  [[nodiscard]] const Reading& reading() const noexcept { return steps_.reading(); }

 private:
  RunSteps steps_;
  std::optional<Step> step_;
  std::uint64_t passed_ = 0;
};

void measure_noise(const std::filesystem::path& a, const std::filesystem::path& perturbed,
                   std::optional<std::int64_t> until, Comparison& comparison) {
  RunSteps steps(a);
  Follower other(perturbed);
  while (std::optional<Step> step = steps.next()) {
    if (until && step->iteration > *until) return;
    const std::map<std::string, double> scalars = std::move(step->scalars);
    Step* const beside = other.at(step->iteration);
    if (beside != nullptr) comparison.measure(step->iteration, keyed(*step), *beside, scalars);
  }
}

}  // namespace

Diff compare_runs(const std::filesystem::path& a, const std::filesystem::path& b,
                  const DiffOptions& options) {
  RunSteps steps_a(a);
  Follower run_b(b);
  Diff diff;
  diff.a = steps_a.reading();
  diff.b = run_b.reading();
  diff.precision = precision_of(diff.a.runs, diff.b.runs);
  RoundingNoise noise(diff.precision);
  Comparison comparison(noise, diff);
  for (const std::filesystem::path& path : options.perturbed)
    measure_noise(a, path, options.until, comparison);
  AMAXSCOPE_CHECK(
      options.perturbed.empty() || noise.measured(), ErrorCode::kInput,
      "{}: has no value of the same tensor and iteration as {}; --perturbed wants a run as A with one "
      "more rounding (train --perturb)",
      options.perturbed.front().string(), a.string());
  diff.measured_noise = noise.measured();
  while (std::optional<Step> step = steps_a.next()) {
    const std::int64_t iteration = step->iteration;
    if (options.until && iteration > *options.until) break;
    const std::map<std::string, double> scalars = std::move(step->scalars);
    Step* const other = run_b.at(iteration);
    if (other == nullptr) {
      ++diff.only_a;
      continue;
    }
    ++diff.iterations;
    comparison.compare(iteration, keyed(*step), *other, scalars);
    run_b.leave();
  }
  diff.only_b = run_b.rest(options.until);
  comparison.finish();
  diff.a = steps_a.reading();
  diff.b = run_b.reading();
  diff.header = header_differences(diff.a, diff.b);
  diff.noise = noise.largest();
  return diff;
}

}  // namespace amaxscope::report
