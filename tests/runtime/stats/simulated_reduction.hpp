// The three collectives of a reduction, done in one process: what each rank packs, combined as MAX, SUM, SUM.
#pragma once

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/stats/accumulator.hpp"

namespace amaxscope::testing {

/// What came back from the three collectives.
struct SimulatedReduction {
  std::vector<std::uint32_t> max;
  std::vector<double> sums;
  std::vector<double> moments;
  [[nodiscard]] ReducedStat view() const { return {max, sums, moments}; }
};

template <class Ranks>
SimulatedReduction simulate(const Ranks& ranks) {
  const StatAccumulator& first = *ranks.front();
  SimulatedReduction out;
  out.max.resize(first.max_words());
  for (const StatAccumulator* rank : ranks) {
    std::vector<std::uint32_t> own(rank->max_words());
    rank->pack_max(own);
    for (std::size_t i = 0; i < out.max.size(); ++i) out.max[i] = std::max(out.max[i], own[i]);
  }
  out.sums.resize(first.sum_words_for(out.max));
  for (const StatAccumulator* rank : ranks) {
    std::vector<double> own(rank->sum_words_for(out.max));
    rank->pack_sums_for(out.max, own);
    for (std::size_t i = 0; i < out.sums.size(); ++i) out.sums[i] += own[i];
  }
  out.moments.resize(first.moment_words());
  for (const StatAccumulator* rank : ranks) {
    std::vector<double> own(rank->moment_words());
    rank->pack_moments(out.sums, own);
    for (std::size_t i = 0; i < out.moments.size(); ++i) out.moments[i] += own[i];
  }
  return out;
}

inline std::vector<StatValue> reduce_over(const std::vector<const StatAccumulator*>& ranks) {
  return ranks.front()->values(simulate(ranks).view());
}

/// A due step as PackedReduction does it, state and reset included; what the last rank reports.
inline std::vector<StatValue> reduce_step(const std::vector<StatAccumulator*>& ranks,
                                          std::int64_t iteration) {
  const SimulatedReduction reduced = simulate(ranks);
  std::vector<StatValue> values;
  for (StatAccumulator* rank : ranks) {
    rank->advance(reduced.view(), iteration);
    values = rank->values(reduced.view());
    rank->reset();
  }
  return values;
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
