// One failure of one rank, at one place and iteration, and a feature that carries it into hooks and into the
// reduction of amaxes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/feature/registry.hpp"

namespace amaxscope::testing {

struct Plan {
  /// "kill", "stop", "throw", "exit0", "exit3", "finalize", "full", "sleep", or one that the place knows
  std::string fault;
  std::string place;  ///< "start", "hook", "dump", "amax", "guard", "train", "step", "close"
  int rank = 0;
  std::int64_t iteration = 0;
};

class Saboteur {
 public:
  Saboteur(Plan plan, int rank) : plan_(std::move(plan)), rank_(rank) {}

  void set_iteration(std::int64_t iteration) noexcept { iteration_ = iteration; }
  /// Whether this rank is to do this now.
  [[nodiscard]] bool strikes(std::string_view fault, std::string_view place) const;
  /// Does what ends or stops a process, or throws, when it is to happen here and now.
  void strike(std::string_view place) const;

  /// The feature "Saboteur" for a registry; this object must outlive it. Its hook strikes at "hook", and
  /// reduces one amax a tensor ("amax": with another count, another name).
  [[nodiscard]] FeatureEntry entry() const;

 private:
  Plan plan_;
  int rank_;
  std::int64_t iteration_ = -1;
};

}  // namespace amaxscope::testing
