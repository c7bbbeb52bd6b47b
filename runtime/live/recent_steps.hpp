// The statistics of the last steps on which any were due, so that what led to an event can be written down.
// Memory: as many steps as it was made for. Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "runtime/sinks/sink.hpp"

namespace amaxscope {

class RecentSteps {
 public:
  explicit RecentSteps(std::size_t steps) : steps_(steps) {}

  struct Step {
    std::int64_t iteration = 0;
    std::vector<StatRecord> records;
  };
  /// A step without records is none. With room for no step nothing is kept.
  void add(std::int64_t iteration, const std::vector<StatRecord>& records) {
    if (records.empty() || steps_ == 0) return;
    if (kept_.size() == steps_) kept_.pop_front();
    kept_.push_back({iteration, records});
  }
  /// Oldest first.
  [[nodiscard]] const std::deque<Step>& kept() const noexcept { return kept_; }

 private:
  std::size_t steps_;
  std::deque<Step> kept_;
};

}  // namespace amaxscope
