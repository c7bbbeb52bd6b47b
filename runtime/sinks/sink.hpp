// Where numbers go. Sinks get values that are already reduced, with their full identity.
// Called by the session's thread inside step() and close(). A sink may block on disk; it throws Error(kIo)
// when the system refuses a write, and the session then follows its failure policy.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/feature/event.hpp"
#include "runtime/feature/finding.hpp"
#include "runtime/names.hpp"
#include "runtime/stats/accumulator.hpp"

namespace amaxscope {

/// Everything about one tensor at one iteration and phase.
struct StatRecord {
  std::int64_t iteration = 0;
  std::string layer;
  std::string tensor;
  Phase phase = Phase::kForward;
  std::vector<StatValue> stats;
  std::string recipe;  ///< what quantizes the tensor ("delayed"); "none" in high precision
  /// What the operand is in, by the quantizer that ran ("E4M3", "E2M1+E4M3 scales", "high precision"); empty
  /// for what is no operand, and where this rank did not see it.
  std::string format = {};
  std::vector<int> group;  ///< world ranks the numbers are over
  Layout layout = Layout::kReplicated;
  bool leader = true;  ///< this rank writes the group's record where each is wanted once
};

using Scalars = std::map<std::string, double>;

class Sink {
 public:
  virtual ~Sink() = default;
  virtual void record(const StatRecord& record) = 0;
  virtual void scalars(std::int64_t iteration, const Scalars& values) = 0;
  /// What a check found; each is handed to the ranks that write it only.
  virtual void finding(const Finding&) {}
  /// What all ranks have agreed on at this iteration; handed to the first rank of the world only.
  virtual void event(std::int64_t /*iteration*/, const Event&) {}
  /// After the last record of an iteration: everything up to here must survive the process.
  virtual void end_of_step(std::int64_t iteration) = 0;
  /// The run was closed after this iteration, and this rank has written all it had to; before close(), which
  /// also comes without it.
  virtual void end_of_run(std::int64_t /*last_iteration*/) {}
  virtual void close() = 0;
};

}  // namespace amaxscope
