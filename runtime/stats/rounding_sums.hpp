// Sums over sampled rounding errors (kernels/rounding_error.hpp), and what follows from them. Value types.
#pragma once

#include <optional>
#include <span>

namespace amaxscope {

/// Errors in grid steps. += gives the sums of both.
struct RoundingSums {
  double count = 0;
  double sum = 0;
  double squares = 0;
  /// Pairs of errors away from zero at one place, at the previous due iteration and now.
  double pairs = 0;
  double previous = 0;
  double current = 0;
  double previous_squares = 0;
  double current_squares = 0;
  double products = 0;

  RoundingSums& operator+=(const RoundingSums& other) noexcept;
};

/// errors, outward: as sampled_rounding_errors gives them, NaN where an element was not rounded. previous:
/// outward of the previous due iteration at the same places, or empty.
RoundingSums rounding_sums(std::span<const float> errors, std::span<const float> outward,
                           std::span<const float> previous);

/// Mean error in steps; 0 within its noise for an unbiased rounding.
std::optional<double> rounding_mean(const RoundingSums& sums);
/// mean / (standard deviation / sqrt(count)): beyond +-4 the mean is no accident. None without a spread.
std::optional<double> rounding_z(const RoundingSums& sums);
/// Pearson's correlation over the pairs: 0 for a stochastic rounding with fresh random numbers, whatever the
/// tensor does; about 0.5 when it repeats its own on a tensor that changes. Rounding to nearest has some
/// where magnitudes stay alike. None without pairs or without a spread.
std::optional<double> rounding_correlation(const RoundingSums& sums);

}  // namespace amaxscope
