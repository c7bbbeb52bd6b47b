// When a feature acts: a pure function of the iteration. A value type.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace amaxscope {

struct IterationInterval {
  std::int64_t start = 0;
  std::optional<std::int64_t> end;  ///< inclusive; none: no end
  friend bool operator==(const IterationInterval&, const IterationInterval&) = default;
};

/// Due at i when i is a multiple of freq (counted from 0) and lies in an interval.
class Schedule {
 public:
  Schedule() : Schedule(1, {IterationInterval{}}) {}  ///< every iteration
  /// Intervals are sorted and must not overlap, freq >= 1, start <= end. Throws Error(kUsage).
  Schedule(std::int64_t freq, std::vector<IterationInterval> intervals);

  [[nodiscard]] bool due(std::int64_t iteration) const noexcept;
  /// The first due iteration >= from, if there is one.
  [[nodiscard]] std::optional<std::int64_t> next_due(std::int64_t from) const noexcept;
  /// Canonical text, equal exactly when the schedules are: "freq=10 [0,100] [200,)".
  [[nodiscard]] std::string text() const;
  [[nodiscard]] std::int64_t freq() const noexcept { return freq_; }
  [[nodiscard]] const std::vector<IterationInterval>& intervals() const noexcept { return intervals_; }
  friend bool operator==(const Schedule&, const Schedule&) = default;

 private:
  std::int64_t freq_;
  std::vector<IterationInterval> intervals_;
};

}  // namespace amaxscope
