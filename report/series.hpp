// Values over iterations in bounded memory, and simple robust statistics of them. Value types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace amaxscope::report {

struct Point {
  std::int64_t iteration = 0;
  double value = 0;
};

/// Keeps at most `limit` points: when they are more, of every two the one that is further from the point kept
/// before it, so that jumps survive.
class Series {
 public:
  explicit Series(std::size_t limit = 512) : limit_(limit) {}
  /// Iterations only grow: one that does not (the same of another rank's file) is left out.
  void add(std::int64_t iteration, double value);
  [[nodiscard]] std::span<const Point> points() const noexcept { return points_; }
  [[nodiscard]] bool empty() const noexcept { return points_.empty(); }

 private:
  void thin();
  std::size_t limit_;
  std::uint64_t stride_ = 1;   ///< every how many points one is kept
  std::uint64_t waiting_ = 0;  ///< of them, seen since the last
  Point candidate_;
  std::optional<std::int64_t> newest_;
  std::vector<Point> points_;
};

/// Of the finite values; NaN without one.
double median(std::span<const Point> points);

/// Some five of them, evenly spread, for a table.
std::vector<Point> a_few_of(std::span<const Point> points);

/// The first point of a run of points with values above limit that has `length` points or more and reaches
/// over `iterations` or more; null when there is none.
const Point* first_run_above(std::span<const Point> points, double limit, std::size_t length,
                             std::int64_t iterations);

}  // namespace amaxscope::report
