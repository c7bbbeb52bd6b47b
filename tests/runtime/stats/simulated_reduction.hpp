// The three collectives of a reduction, done in one process: what each rank packs, combined as MAX, SUM, SUM.
#pragma once

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/stats/accumulator.hpp"

namespace amaxscope::testing {

inline std::vector<StatValue> reduce_over(const std::vector<const StatAccumulator*>& ranks) {
  const StatAccumulator& first = *ranks.front();
  std::vector<std::uint32_t> max(first.max_words());
  std::vector<double> sums(first.sum_words());
  std::vector<double> moments(first.moment_words());
  for (const StatAccumulator* rank : ranks) {
    std::vector<std::uint32_t> own_max(rank->max_words());
    std::vector<double> own_sums(rank->sum_words());
    rank->pack_max(own_max);
    rank->pack_sums(own_sums);
    for (std::size_t i = 0; i < max.size(); ++i) max[i] = std::max(max[i], own_max[i]);
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += own_sums[i];
  }
  for (const StatAccumulator* rank : ranks) {
    std::vector<double> own(rank->moment_words());
    rank->pack_moments(sums, own);
    for (std::size_t i = 0; i < moments.size(); ++i) moments[i] += own[i];
  }
  return first.values({max, sums, moments});
}

inline std::optional<double> value_of(const std::vector<StatValue>& values, std::string_view name) {
  for (const StatValue& value : values) {
    if (value.name == name) return value.value;
  }
  return std::nullopt;
}

inline std::vector<std::string> flags_of(const std::vector<StatValue>& values, std::string_view name) {
  for (const StatValue& value : values) {
    if (value.name == name) return value.flags;
  }
  return {};
}

inline std::vector<std::string> names_of(const std::vector<StatValue>& values) {
  std::vector<std::string> names;
  for (const StatValue& value : values) names.push_back(value.name);
  return names;
}

}  // namespace amaxscope::testing
