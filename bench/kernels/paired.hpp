// Times an item and its limit in turns, so that what other programs on the machine do falls on both.
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

namespace amaxscope::bench {

template <class Action>
double seconds(int repetitions, Action& action) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < repetitions; ++i) action();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / repetitions;
}

/// bytes: what the item reads and writes, and the limit too. Reports the rates of the item and of the limit
/// in the least time of all rounds, the ratio of the two, and how far the limit's own times lay apart: the
/// median over the least. Above about 1.3 the machine was too busy for the ratio to mean much.
template <class Item, class Limit>
void measure(benchmark::State& state, std::size_t bytes, Item item, Limit limit) {
  const int repetitions = static_cast<int>(std::max<std::size_t>(1, (std::size_t{4} << 20) / bytes));
  item();
  limit();
  std::vector<double> items;
  std::vector<double> limits;
  for (auto round : state) {
    static_cast<void>(round);
    const double limit_time = seconds(repetitions, limit);
    const double item_time = seconds(repetitions, item);
    state.SetIterationTime(item_time);
    items.push_back(item_time);
    limits.push_back(limit_time);
  }
  const double gigabytes = static_cast<double>(bytes) * 1e-9;
  std::sort(limits.begin(), limits.end());
  const double item_time = *std::min_element(items.begin(), items.end());
  state.counters["bytes"] = static_cast<double>(bytes);
  state.counters["GB/s"] = gigabytes / item_time;
  state.counters["limit_GB/s"] = gigabytes / limits.front();
  state.counters["ratio"] = limits.front() / item_time;
  state.counters["limit_spread"] = limits[limits.size() / 2] / limits.front();
}

}  // namespace amaxscope::bench
