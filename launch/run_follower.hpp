// A run's log directory, read as it grows, and what is to be seen of the run now. Only reads. One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/flight_rank.hpp"
#include "report/evidence.hpp"
#include "report/metrics_file.hpp"
#include "report/verdict.hpp"

namespace amaxscope::launch {

/// What a check or an alarm found, once.
struct Alarm {
  std::int64_t iteration = 0;
  std::string check;
  std::string layer;
  std::string tensor;
  std::string what;
};

struct RankView {
  int rank = 0;
  std::string state;  ///< as `doctor --flight` says it; "unknown" without a record
  std::string where;
  std::optional<std::int64_t> iteration;
};

/// An operand whose codes are far from it.
struct WorstTensor {
  report::Place place;
  double sqnr = 0;  ///< dB, the newest
  std::int64_t iteration = 0;
  std::optional<double> flushed;    ///< percent
  std::optional<double> saturated;  ///< percent
};

/// One look.
struct RunView {
  report::Reading reading;
  report::Verdict verdict;
  std::optional<std::int64_t> iteration;  ///< the newest that a rank is at or has completed
  std::optional<std::int64_t> steps;      ///< that the trainer was asked for
  std::optional<double> rate;  ///< iterations a second; between the last two looks, or since the start
  std::map<std::string, report::Point> scalars;  ///< the newest of each
  std::vector<RankView> ranks;                   ///< empty: no flight records
  std::vector<Alarm> alarms;                     ///< since the look before, oldest first
  std::vector<Alarm> recent;                     ///< the last few of all
  std::uint64_t alarm_count = 0;
  std::vector<WorstTensor> worst;
  bool closed = false;  ///< the run has ended as it should
  bool dead = false;    ///< all of its processes are gone, and it was not closed
};

class RunFollower {
 public:
  /// Throws Error(kInput) when log_dir is no directory.
  explicit RunFollower(std::filesystem::path log_dir);
  RunView look(std::chrono::system_clock::time_point now);

 private:
  struct Visitor;
  void read_metrics();
  void look_at_ranks(RunView& view) const;

  std::filesystem::path log_dir_;
  report::Evidence evidence_;
  report::Reading reading_;  ///< of the metrics; run.json is read anew each time
  std::map<std::uint64_t, std::unique_ptr<report::MetricsFile>> files_;
  std::map<std::string, report::Point> scalars_;
  std::vector<Alarm> fresh_;
  std::vector<Alarm> recent_;
  std::uint64_t alarm_count_ = 0;
  std::optional<std::pair<std::chrono::system_clock::time_point, std::int64_t>> before_;
};

}  // namespace amaxscope::launch
