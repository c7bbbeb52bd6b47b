// Where a series of log2 amax values is heading. Levels and differences are in bits (powers of two). Value
// type of one thread; every answer is a function of what was added.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

namespace amaxscope {

class TrendSeries {
 public:
  static constexpr std::size_t kSlopePoints = 3;      ///< fewest points that have a slope
  static constexpr double kSwing = 1.0;               ///< bits from an extreme back that make a reversal
  static constexpr std::size_t kReferencePoints = 8;  ///< points whose median is the level to compare with
  static constexpr double kAllowance = 0.5;           ///< bits of difference that no CUSUM counts
  static constexpr double kLargestStep = 2.0;  ///< most that one point adds: a lone spike is no new level
  static constexpr double kDecision = 4.0;     ///< bits at which a CUSUM says that the level moved

  /// window: how many of the last points slope, jump and reversals look at; at least 4.
  explicit TrendSeries(std::size_t window) : window_(window) {}

  /// Iterations ascend.
  void add(std::int64_t iteration, double level);

  [[nodiscard]] std::size_t points() const noexcept { return points_.size(); }
  /// Iterations between the first and the last point of the window.
  [[nodiscard]] std::int64_t span() const noexcept;
  [[nodiscard]] double last() const { return points_.back().level; }
  /// Bits an iteration: the median of the slopes of all pairs of points (Theil and Sen), which a spike does
  /// not move. None with fewer than kSlopePoints.
  [[nodiscard]] std::optional<double> slope() const;
  /// The last level less the median of those before it in the window. None with fewer than kSlopePoints
  /// before.
  [[nodiscard]] std::optional<double> jump() const;
  /// How often the window turns up or down by kSwing or more.
  [[nodiscard]] int reversals() const;
  /// The iteration at which the level last moved, by two-sided CUSUM: sums of (level - reference -+
  /// kAllowance), each term at most kLargestStep, kept at 0 or above; the level moved when a sum reaches
  /// kDecision, at the first point since it was 0. The reference is then the median of the next
  /// kReferencePoints points.
  [[nodiscard]] std::optional<std::int64_t> change_point() const noexcept { return change_; }
  /// Sum and sign: the mean level from the change point to its detection, less the reference before.
  [[nodiscard]] std::optional<double> shift() const noexcept { return shift_; }

  /// Everything that later answers depend on, for a restart; restore() takes it up again. Throws
  /// Error(kInput) for numbers that saved() of a series with this window does not give.
  [[nodiscard]] std::vector<double> saved() const;
  void restore(std::span<const double> saved);

 private:
  struct Point {
    std::int64_t iteration;
    double level;
  };
  struct Cusum {
    double sum = 0;
    std::int64_t since = 0;  ///< iteration of the first point after it was 0
    double levels = 0;       ///< sum of the levels since then
    std::size_t count = 0;
    bool add(double excess, std::int64_t iteration, double level);
  };
  void detect(std::int64_t iteration, double level);

  std::size_t window_;
  std::deque<Point> points_;
  std::vector<double> learning_;  ///< points of the reference while they are fewer than kReferencePoints
  double reference_ = 0;
  Cusum up_;
  Cusum down_;
  std::optional<std::int64_t> change_;
  std::optional<double> shift_;
};

}  // namespace amaxscope
