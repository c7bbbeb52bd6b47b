#include "runtime/schedule/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "core/error.hpp"

namespace amaxscope {

namespace {

std::string to_text(const IterationInterval& interval) {
  return interval.end ? fmt::format("[{},{}]", interval.start, *interval.end)
                      : fmt::format("[{},)", interval.start);
}

}  // namespace

Schedule::Schedule(std::int64_t freq, std::vector<IterationInterval> intervals)
    : freq_(freq), intervals_(std::move(intervals)) {
  AMAXSCOPE_CHECK(freq >= 1, ErrorCode::kUsage, "schedule: freq is {}, it must be 1 or more", freq);
  for (const IterationInterval& interval : intervals_) {
    AMAXSCOPE_CHECK(interval.start >= 0, ErrorCode::kUsage, "schedule: interval {} starts before iteration 0",
                    to_text(interval));
    AMAXSCOPE_CHECK(!interval.end || interval.start <= *interval.end, ErrorCode::kUsage,
                    "schedule: interval {} ends before it starts", to_text(interval));
  }
  std::sort(intervals_.begin(), intervals_.end(),
            [](const IterationInterval& a, const IterationInterval& b) { return a.start < b.start; });
  for (std::size_t i = 1; i < intervals_.size(); ++i) {
    const IterationInterval& left = intervals_[i - 1];
    AMAXSCOPE_CHECK(left.end && *left.end < intervals_[i].start, ErrorCode::kUsage,
                    "schedule: intervals {} and {} overlap", to_text(left), to_text(intervals_[i]));
  }
}

bool Schedule::due(std::int64_t iteration) const noexcept { return next_due(iteration) == iteration; }

std::optional<std::int64_t> Schedule::next_due(std::int64_t from) const noexcept {
  for (const IterationInterval& interval : intervals_) {
    std::int64_t candidate = std::max(from, interval.start);
    if (const std::int64_t rest = candidate % freq_; rest != 0) {
      const std::int64_t step = freq_ - rest;
      if (candidate > std::numeric_limits<std::int64_t>::max() - step) return std::nullopt;
      candidate += step;
    }
    if (!interval.end || candidate <= *interval.end) return candidate;
  }
  return std::nullopt;
}

std::string Schedule::text() const {
  std::string text = fmt::format("freq={}", freq_);
  for (const IterationInterval& interval : intervals_) text += " " + to_text(interval);
  return text;
}

}  // namespace amaxscope
