#include "runtime/stats/rounding_sums.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace amaxscope {

RoundingSums& RoundingSums::operator+=(const RoundingSums& other) noexcept {
  count += other.count;
  sum += other.sum;
  squares += other.squares;
  pairs += other.pairs;
  previous += other.previous;
  current += other.current;
  previous_squares += other.previous_squares;
  current_squares += other.current_squares;
  products += other.products;
  return *this;
}

RoundingSums rounding_sums(std::span<const float> errors, std::span<const float> outward,
                           std::span<const float> previous) {
  RoundingSums sums;
  const bool paired = previous.size() == errors.size();
  for (std::size_t i = 0; i < errors.size(); ++i) {
    if (std::isnan(errors[i])) continue;
    const auto now = static_cast<double>(errors[i]);
    sums.count += 1;
    sums.sum += now;
    sums.squares += now * now;
    if (!paired || std::isnan(previous[i])) continue;
    const auto before = static_cast<double>(previous[i]);
    const auto after = static_cast<double>(outward[i]);
    sums.pairs += 1;
    sums.previous += before;
    sums.current += after;
    sums.previous_squares += before * before;
    sums.current_squares += after * after;
    sums.products += before * after;
  }
  return sums;
}

std::optional<double> rounding_mean(const RoundingSums& sums) {
  if (sums.count == 0) return std::nullopt;
  return sums.sum / sums.count;
}

std::optional<double> rounding_z(const RoundingSums& sums) {
  if (sums.count == 0) return std::nullopt;
  const double mean = sums.sum / sums.count;
  const double variance = sums.squares / sums.count - mean * mean;
  if (variance <= 0) return std::nullopt;
  return mean * std::sqrt(sums.count / variance);
}

std::optional<double> rounding_correlation(const RoundingSums& sums) {
  if (sums.pairs == 0) return std::nullopt;
  const double before = sums.previous / sums.pairs;
  const double now = sums.current / sums.pairs;
  const double spread_before = sums.previous_squares / sums.pairs - before * before;
  const double spread_now = sums.current_squares / sums.pairs - now * now;
  if (spread_before <= 0 || spread_now <= 0) return std::nullopt;
  const double together = sums.products / sums.pairs - before * now;
  return std::clamp(together / std::sqrt(spread_before * spread_now), -1.0, 1.0);
}

}  // namespace amaxscope
