#include "runtime/stats/trend_series.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/error.hpp"

namespace amaxscope {

namespace {

constexpr double kLargestCount = 0x1p53;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  if (values.size() % 2 != 0) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

}  // namespace

void TrendSeries::add(std::int64_t iteration, double level) {
  points_.push_back({iteration, level});
  if (points_.size() > window_) points_.pop_front();
  detect(iteration, level);
}

std::int64_t TrendSeries::span() const noexcept {
  return points_.empty() ? 0 : points_.back().iteration - points_.front().iteration;
}

std::optional<double> TrendSeries::slope() const {
  if (points_.size() < kSlopePoints) return std::nullopt;
  std::vector<double> slopes;
  slopes.reserve(points_.size() * (points_.size() - 1) / 2);
  for (std::size_t i = 0; i < points_.size(); ++i) {
    for (std::size_t j = i + 1; j < points_.size(); ++j) {
      slopes.push_back((points_[j].level - points_[i].level) /
                       static_cast<double>(points_[j].iteration - points_[i].iteration));
    }
  }
  return median(std::move(slopes));
}

std::optional<double> TrendSeries::jump() const {
  if (points_.size() < kSlopePoints + 1) return std::nullopt;
  std::vector<double> before;
  for (std::size_t i = 0; i + 1 < points_.size(); ++i) before.push_back(points_[i].level);
  return last() - median(std::move(before));
}

int TrendSeries::reversals() const {
  if (points_.empty()) return 0;
  int count = 0;
  int direction = 0;
  double lowest = points_.front().level;  // since the last turn
  double highest = lowest;
  for (const Point& point : points_) {
    lowest = std::min(lowest, point.level);
    highest = std::max(highest, point.level);
    const bool turned_up = direction <= 0 && point.level - lowest >= kSwing;
    const bool turned_down = direction >= 0 && highest - point.level >= kSwing;
    if (!turned_up && !turned_down) continue;
    if (direction != 0) ++count;
    direction = turned_up ? 1 : -1;
    lowest = highest = point.level;
  }
  return count;
}

bool TrendSeries::Cusum::add(double excess, std::int64_t iteration, double level) {
  const double next = sum + std::min(excess - kAllowance, kLargestStep);
  if (next <= 0) {
    *this = {};
    return false;
  }
  if (count == 0) since = iteration;
  sum = next;
  levels += level;
  ++count;
  return sum >= kDecision;
}

void TrendSeries::detect(std::int64_t iteration, double level) {
  if (learning_.size() < kReferencePoints) {
    learning_.push_back(level);
    if (learning_.size() == kReferencePoints) reference_ = median(learning_);
    return;
  }
  const bool rose = up_.add(level - reference_, iteration, level);
  const bool fell = down_.add(reference_ - level, iteration, level);
  if (!rose && !fell) return;
  const Cusum& moved = rose ? up_ : down_;
  change_ = moved.since;
  shift_ = moved.levels / static_cast<double>(moved.count) - reference_;
  up_ = down_ = {};
  learning_.clear();
}

std::vector<double> TrendSeries::saved() const {
  std::vector<double> words = {static_cast<double>(points_.size()), static_cast<double>(learning_.size()),
                               reference_};
  for (const Cusum* cusum : {&up_, &down_}) {
    words.insert(words.end(), {cusum->sum, static_cast<double>(cusum->since), cusum->levels,
                               static_cast<double>(cusum->count)});
  }
  words.insert(words.end(), {change_ ? 1.0 : 0.0, static_cast<double>(change_.value_or(0)),
                             shift_ ? 1.0 : 0.0, shift_.value_or(0)});
  for (const Point& point : points_)
    words.insert(words.end(), {static_cast<double>(point.iteration), point.level});
  words.insert(words.end(), learning_.begin(), learning_.end());
  return words;
}

void TrendSeries::restore(std::span<const double> saved) {
  constexpr std::size_t kFixed = 15;
  // Anybody's numbers: none is converted before it is known to fit.
  AMAXSCOPE_CHECK(std::ranges::all_of(saved, [](double number) { return std::isfinite(number); }),
                  ErrorCode::kInput, "a saved trend has a number that is not finite");
  const auto count_at = [&](std::size_t i) {
    AMAXSCOPE_CHECK(saved[i] >= 0 && saved[i] <= kLargestCount, ErrorCode::kInput,
                    "a saved trend has {} where a count or an iteration stands", saved[i]);
    return static_cast<std::size_t>(saved[i]);
  };
  const auto iteration_at = [&](std::size_t i) { return static_cast<std::int64_t>(count_at(i)); };
  const bool fits = saved.size() >= kFixed && count_at(0) <= window_ && count_at(1) <= kReferencePoints &&
                    saved.size() == kFixed + 2 * count_at(0) + count_at(1);
  AMAXSCOPE_CHECK(fits, ErrorCode::kInput, "a saved trend of {} numbers does not fit a window of {}",
                  saved.size(), window_);
  TrendSeries restored(window_);
  restored.reference_ = saved[2];
  std::size_t at = 3;
  for (Cusum* cusum : {&restored.up_, &restored.down_}) {
    *cusum = {saved[at], iteration_at(at + 1), saved[at + 2], count_at(at + 3)};
    at += 4;
  }
  if (saved[at] != 0) restored.change_ = iteration_at(at + 1);
  if (saved[at + 2] != 0) restored.shift_ = saved[at + 3];
  at = kFixed;
  for (std::size_t i = 0; i < count_at(0); ++i, at += 2) {
    AMAXSCOPE_CHECK(restored.points_.empty() || iteration_at(at) > restored.points_.back().iteration,
                    ErrorCode::kInput, "a saved trend has iteration {} after {}", saved[at],
                    restored.points_.back().iteration);
    restored.points_.push_back({iteration_at(at), saved[at + 1]});
  }
  restored.learning_.assign(saved.begin() + static_cast<std::ptrdiff_t>(at), saved.end());
  *this = std::move(restored);
}

}  // namespace amaxscope
