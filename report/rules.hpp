// The rules: each looks at the evidence for one kind of cause. Pure functions; none knows another. Internal
// to report/. Thresholds are chosen so that healthy runs of all recipes stay clear of them by a wide margin:
// docs/report.md has the list.
#pragma once

#include <vector>

#include "report/verdict.hpp"

namespace amaxscope::report {

/// Equalities that did not hold (I1 to I9), the one first seen and closest to a cause first.
std::vector<Cause> broken_invariants(const Evidence& evidence);
/// The first NaN or Inf, from NonFiniteGuard or from counts.
std::vector<Cause> nonfinite_values(const Evidence& evidence);
/// Codes in a coarser format than the recipe's, with what the finer one would give.
std::vector<Cause> coarse_formats(const Evidence& evidence);
/// Energy that saturates or is flushed over and over, and scales worse than what their recipe would choose.
std::vector<Cause> lost_energy(const Evidence& evidence);
/// Stochastic rounding that repeats its random numbers.
std::vector<Cause> repeated_rounding(const Evidence& evidence);
/// Attribution by CompareGemm: sums that lose more than operands do, weight gradients that drown in noise.
std::vector<Cause> gemm_errors(const Evidence& evidence);
/// Updates that vanish when they are added to the stored weights.
std::vector<Cause> lost_updates(const Evidence& evidence);
/// One channel that takes over an activation, or a weight.
std::vector<Cause> outlier_channels(const Evidence& evidence);
/// A loss that jumps after gradients did, or that leaves for good.
std::vector<Cause> training_trouble(const Evidence& evidence);

}  // namespace amaxscope::report
