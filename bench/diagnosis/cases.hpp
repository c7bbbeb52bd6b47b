// What bench/diagnosis plants, and what the right verdict on it is. A value type and the list.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "report/verdict.hpp"

namespace amaxscope::diagnosis {

struct Case {
  std::string id;
  int ranks = 2;
  std::vector<std::string> options;  ///< of `amaxscope train`, beside those that all cases have
  std::string extra_yaml = {};       ///< sections beside the preset's
  report::Outcome outcome = report::Outcome::kHealthy;
  std::string kind = {};   ///< Cause::kind
  std::string layer = {};  ///< must be the first place, or among several when `several`
  std::string tensor = {};
  bool several = false;                     ///< the cause is in many places
  std::vector<std::int64_t> at_ranks = {};  ///< empty: all, or no rank in particular
  std::int64_t iteration = 0;
  std::int64_t within = 0;  ///< iterations: 0 for equalities, the distance of due iterations for the rest
  /// The right iteration is the one in which the fault first made a difference, as the training says.
  bool when_it_took_effect = false;
};

/// The planted faults, by the ids of docs/training.md, and runs that have nothing wrong with them.
std::vector<Case> cases();

}  // namespace amaxscope::diagnosis
