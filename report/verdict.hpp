// What is the matter with a run, where, since when, how sure, and what to do. Value types and the judge.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "report/evidence.hpp"
#include "report/records.hpp"

namespace amaxscope::report {

enum class Outcome : std::uint8_t {
  kFound,         ///< a cause in precision or in what must be equal
  kNotPrecision,  ///< something is wrong, and precision is not to blame
  kCannotTell,    ///< something is wrong, or nothing that tells right from wrong was measured
  kNoData,        ///< nothing was recorded
  kHealthy,       ///< nothing found in what was measured
};

enum class Confidence : std::uint8_t { kCertain, kLikely, kPossible };

/// A cause. `kind` is one word for programs: replicas_differ, wrong_reduction_group, foreign_scale,
/// copies_differ, recompute_differs, scale_too_large, scale_not_from_history, stale_weight, scalars_differ,
/// state_lost, nonfinite, format, saturation, flush, scale_worse_than_recipe, rounding_repeats, lost_updates,
/// outlier_channel, accumulation, gradient_noise,
/// optimizer_spike, divergence.
struct Cause {
  std::string kind;
  Outcome outcome = Outcome::kFound;
  Confidence confidence = Confidence::kCertain;
  std::string sentence;             ///< what is wrong, where
  std::int64_t iteration = 0;       ///< the first at which it was seen
  bool sampled = false;             ///< seen at due iterations only: it may have begun after the one before
  std::vector<Place> places;        ///< the first is the one that speaks most clearly
  std::vector<std::int64_t> ranks;  ///< empty: all
  std::string phase;
  std::vector<std::string> gemms;
  std::optional<std::int64_t> channel;  ///< a column; of a weight a row: an output channel
  std::optional<std::int64_t>
      tp_rank;                   ///< of the ranks that hold the channel; the judge names them in `ranks`
  std::vector<std::string> why;  ///< what separates it from its neighbours
  std::vector<Point> series;     ///< of `series_name`, a few points
  std::string series_name;
  std::vector<std::string> actions;
  std::string yaml;    ///< a debug config to go on with; empty: none helps
  std::string expect;  ///< after the action
};

/// Something that changed, and when.
struct Moved {
  std::int64_t iteration = 0;
  std::string what;
};

struct Verdict {
  static constexpr int kVersion = 1;
  Outcome outcome = Outcome::kNoData;
  std::string sentence;
  std::optional<Cause> cause;             ///< of kFound and kNotPrecision; of kCannotTell what it looks like
  std::vector<Cause> also;                ///< what else was found, in the order of their iterations
  std::vector<Moved> moved;               ///< in the order in which it happened
  std::vector<std::string> clean;         ///< what was checked and found clean
  std::vector<std::string> not_measured;  ///< and what would measure it
  std::vector<std::string> other_paths;   ///< layers that debugging led another way
  std::string last_good_state;            ///< a saved state from before; empty: none known
  Reading reading;
  std::uint64_t records = 0;
};

std::string_view to_string(Outcome outcome) noexcept;
std::string_view to_string(Confidence confidence) noexcept;

/// Judges what is in a log directory. Throws Error(kInput) when it is no directory.
Verdict judge(const std::filesystem::path& log_dir);
/// The same, of what was read already.
Verdict judge(const Evidence& evidence, Reading reading);

}  // namespace amaxscope::report
