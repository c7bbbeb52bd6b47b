#include "report/series.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace amaxscope::report {

namespace {

/// How much of a change b is after a; what is not finite is the largest.
double change(const Point& a, const Point& b) {
  const double difference = std::abs(b.value - a.value);
  return std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference;
}

}  // namespace

void Series::add(std::int64_t iteration, double value) {
  if (newest_ && iteration <= *newest_) return;
  newest_ = iteration;
  const Point point{iteration, value};
  if (waiting_ == 0 || points_.empty() ||
      change(points_.back(), point) > change(points_.back(), candidate_)) {
    candidate_ = point;
  }
  if (++waiting_ < stride_) return;
  waiting_ = 0;
  points_.push_back(candidate_);
  if (points_.size() >= limit_) thin();
}

void Series::thin() {
  std::vector<Point> kept;
  kept.reserve(points_.size() / 2 + 1);
  for (std::size_t i = 0; i < points_.size(); i += 2) {
    const bool second = i + 1 < points_.size() && !kept.empty() &&
                        change(kept.back(), points_[i + 1]) > change(kept.back(), points_[i]);
    kept.push_back(points_[second ? i + 1 : i]);
  }
  points_ = std::move(kept);
  stride_ *= 2;
}

std::vector<Point> a_few_of(std::span<const Point> points) {
  std::vector<Point> few;
  for (std::size_t i = 0; i < points.size(); i += std::max<std::size_t>(1, points.size() / 4))
    few.push_back(points[i]);
  return few;
}

double median(std::span<const Point> points) {
  std::vector<double> values;
  for (const Point& point : points) {
    if (std::isfinite(point.value)) values.push_back(point.value);
  }
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

const Point* first_run_above(std::span<const Point> points, double limit, std::size_t length,
                             std::int64_t iterations) {
  std::size_t run = 0;
  for (std::size_t i = 0; i < points.size(); ++i) {
    run = points[i].value > limit ? run + 1 : 0;
    const Point* const first = &points[i + 1 - std::max<std::size_t>(run, 1)];
    if (run >= length && points[i].iteration - first->iteration >= iterations) return first;
  }
  return nullptr;
}

}  // namespace amaxscope::report
