// How far apart two values of one statistic are, in a unit in which rounding looks alike for tensors of any
// size. Pure functions.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace amaxscope::report {

enum class Measure {
  kRelative,  ///< |a - b| / max(|a|, |b|): magnitudes
  kOfSpread,  ///< |a - b| over the tensor's own size (rms, std, amax): values around zero, as the mean
  kPlain,     ///< |a - b|: percentages, decibels, bits, cosines, correlations
  kOfTotal,   ///< |a - b| over the number of elements: bins of a histogram
  kExact,     ///< 0 or infinite: what is counted
  kNone,      ///< not compared: which channel or block is the largest is decided by a hair
};

/// A statistic's name without the recipe before it and the direction after it: "mxfp8_mse_columnwise" is
/// "mse". All bins of a histogram are "histogram".
std::string base_name(const std::string& stat);
Measure measure_of(std::string_view base);
/// The power of the tensor that the statistic grows with, when the tensor is multiplied by a number: 1 for
/// amax and norms, 2 for mse, 0 for what stays or is none of these.
int degree_of(std::string_view base);

/// stats_a, stats_b: the other statistics of the same two records. 0 when both are NaN or equal; infinite
/// when one of them only is not finite.
double distance(Measure measure, double a, double b, const std::map<std::string, double>& stats_a,
                const std::map<std::string, double>& stats_b);

}  // namespace amaxscope::report
