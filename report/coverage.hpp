// What a run's records could have shown: said beside every verdict, so that silence is not taken for health.
// Internal to report/.
#pragma once

#include <string>
#include <vector>

#include "report/evidence.hpp"

namespace amaxscope::report {

struct Coverage {
  std::vector<std::string> clean;         ///< measured, and nothing found
  std::vector<std::string> not_measured;  ///< with what would measure it
  bool invariants = false;                ///< any equality was compared
  bool nonfinite = false;
  bool quantization = false;  ///< saturation, flush or error of codes
  bool loss = false;
};

/// found: kinds of causes (Cause::kind) and names of checks that found something.
Coverage coverage_of(const Evidence& evidence, const std::vector<std::string>& found);

}  // namespace amaxscope::report
