#include "runtime/config/schedule_keys.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace amaxscope {

namespace {

struct PlacedInterval {
  IterationInterval interval;
  SourcePosition position;
};

class ScheduleReader {
 public:
  ScheduleReader(const std::map<std::string, ConfigValue, std::less<>>& keys, Diagnostics& diagnostics)
      : keys_(keys), diagnostics_(diagnostics) {}

  std::optional<Schedule> read() {
    const ConfigValue* freq = find("freq");
    const ConfigValue* list = find("start_end_list");
    if (list == nullptr) {
      const ConfigValue* start = find("start_step");
      const ConfigValue* end = find("end_step");
      const SourcePosition place = end != nullptr ? end->position() : SourcePosition{};
      add(start != nullptr ? *start->as_integer() : 0, end != nullptr ? *end->as_integer() : -1, place);
    } else {
      for (const char* replaced : {"start_step", "end_step"}) {
        if (const ConfigValue* key = find(replaced)) {
          diagnostics_.warn(key->position(),
                            fmt::format("{} is ignored: start_end_list replaces it", replaced));
        }
      }
      for (const ConfigValue& pair : *list->as_list()) {
        const ConfigValue::List& ends = *pair.as_list();
        add(*ends[0].as_integer(), *ends[1].as_integer(), pair.position());
      }
    }
    check_overlaps();
    if (!good_) return std::nullopt;
    std::vector<IterationInterval> intervals;
    for (const PlacedInterval& placed : intervals_) intervals.push_back(placed.interval);
    return Schedule(freq != nullptr ? *freq->as_integer() : 1, std::move(intervals));
  }

 private:
  // A null is Python's None: the default.
  [[nodiscard]] const ConfigValue* find(const char* key) const {
    const auto found = keys_.find(key);
    return found == keys_.end() || found->second.is_null() ? nullptr : &found->second;
  }

  void fail(SourcePosition position, std::string message) {
    diagnostics_.error(position, std::move(message));
    good_ = false;
  }

  void add(std::int64_t start, std::int64_t end, SourcePosition position) {
    if (start < 0) return fail(position, fmt::format("[{}, {}] starts before iteration 0", start, end));
    if (end == -1) {
      intervals_.push_back({{start, std::nullopt}, position});
    } else if (end < start) {
      fail(position, fmt::format("the end {} is before the start {}; -1 means no end", end, start));
    } else {
      intervals_.push_back({{start, end}, position});
    }
  }

  void check_overlaps() {
    std::stable_sort(
        intervals_.begin(), intervals_.end(),
        [](const PlacedInterval& a, const PlacedInterval& b) { return a.interval.start < b.interval.start; });
    for (std::size_t i = 1; i < intervals_.size(); ++i) {
      const IterationInterval& left = intervals_[i - 1].interval;
      const IterationInterval& right = intervals_[i].interval;
      if (left.end && *left.end < right.start) continue;
      const auto text = [](const IterationInterval& interval) {
        return fmt::format("[{}, {}]", interval.start, interval.end.value_or(-1));
      };
      fail(intervals_[i].position,
           fmt::format("{} overlaps {}; both ends are included", text(right), text(left)));
    }
  }

  const std::map<std::string, ConfigValue, std::less<>>& keys_;
  Diagnostics& diagnostics_;
  std::vector<PlacedInterval> intervals_;
  bool good_ = true;
};

}  // namespace

std::optional<Schedule> schedule_from(const std::map<std::string, ConfigValue, std::less<>>& keys,
                                      Diagnostics& diagnostics) {
  return ScheduleReader(keys, diagnostics).read();
}

}  // namespace amaxscope
