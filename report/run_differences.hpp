// What two runs were told differently, and numbers of theirs that a ratio may be. Pure functions. Internal to
// report/.
#pragma once

#include <optional>
#include <vector>

#include "report/diff.hpp"

namespace amaxscope::report {

std::vector<HeaderDifference> header_differences(const Reading& a, const Reading& b);

/// The number that b / a is of most of the statistics that grow with the tensor, with its name. None: they
/// have no number in common, or it means nothing that is known, or it is 1.
std::optional<NamedRatio> named_ratio(const std::vector<Departure>& departures, const Reading& a,
                                      const Reading& b);

}  // namespace amaxscope::report
