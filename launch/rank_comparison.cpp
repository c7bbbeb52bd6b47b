#include "launch/rank_comparison.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "launch/failure.hpp"

namespace amaxscope::launch {

namespace {

constexpr const char* kNotSet = "not set";
constexpr std::uint64_t kMebibyte = 1U << 20U;
// NCCL's and Open MPI's buffers for the ranks of one machine outgrow the 64 MiB that containers get by
// default.
constexpr std::uint64_t kEnoughSharedMemory = 1024 * kMebibyte;
constexpr double kClockToleranceSeconds = 1.0;

using RankText = std::function<std::string(const RankReport&)>;

void compare(const std::string& what, const std::vector<std::string>& values, bool matters,
             std::vector<Difference>& found) {
  Difference difference{what, {}, matters};
  for (std::size_t rank = 0; rank < values.size(); ++rank) {
    auto known =
        std::ranges::find(difference.values, values[rank], [](const auto& entry) { return entry.first; });
    if (known == difference.values.end()) {
      known = difference.values.insert(known, {values[rank], {}});
    }
    known->second.push_back(static_cast<int>(rank));
  }
  if (difference.values.size() <= 1) return;
  std::ranges::stable_sort(difference.values, std::greater<>(),
                           [](const auto& entry) { return entry.second.size(); });
  found.push_back(std::move(difference));
}

std::vector<std::string> of_each(const std::vector<RankReport>& by_rank, const RankText& text) {
  std::vector<std::string> values;
  for (const RankReport& report : by_rank) values.push_back(text(report));
  return values;
}

/// A value by rank for each name that any rank has.
using Table = std::map<std::string, std::vector<std::string>>;

Table variables(const std::vector<RankReport>& by_rank) {
  Table table;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    for (const std::string& variable : by_rank[rank].environment) {
      const std::size_t equals = variable.find('=');
      auto& values = table[variable.substr(0, equals)];
      values.resize(by_rank.size(), kNotSet);
      values[rank] = equals == std::string::npos ? "" : variable.substr(equals + 1);
    }
  }
  return table;
}

Table table_of(const std::vector<RankReport>& by_rank,
               std::map<std::string, std::string> RankReport::*member) {
  Table table;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    for (const auto& [name, value] : by_rank[rank].*member) {
      auto& values = table[name];
      values.resize(by_rank.size(), "none");
      values[rank] = value;
    }
  }
  return table;
}

}  // namespace

std::vector<Difference> differences(const std::vector<RankReport>& by_rank) {
  std::vector<Difference> found;
  for (const auto& [name, values] : table_of(by_rank, &RankReport::versions))
    compare(name, values, true, found);
  for (const auto& [name, values] : variables(by_rank)) compare(name, values, true, found);
  compare("config",
          of_each(by_rank,
                  [](const RankReport& r) { return r.config_digest.empty() ? "none" : r.config_digest; }),
          true, found);
  for (const auto& [name, values] : table_of(by_rank, &RankReport::limits))
    compare(name, values, false, found);
  compare("number of cores", of_each(by_rank, [](const RankReport& r) { return fmt::format("{}", r.cores); }),
          false, found);
  return found;
}

std::vector<std::vector<std::string>> difference_rows(const std::vector<Difference>& differences) {
  std::vector<std::vector<std::string>> rows = {{"what differs", "on", "value"}};
  for (const Difference& difference : differences) {
    for (const auto& [value, ranks] : difference.values) {
      const bool first = &ranks == &difference.values.front().second;
      rows.push_back({first ? difference.what : "", rank_list(ranks), value});
    }
  }
  return rows;
}

std::vector<std::string> common_settings(const std::vector<RankReport>& by_rank) {
  std::vector<std::string> settings;
  for (const auto& [name, values] : variables(by_rank)) {
    if (std::ranges::all_of(values, [&](const std::string& value) { return value == values[0]; })) {
      settings.push_back(name + "=" + values[0]);
    }
  }
  return settings;
}

std::vector<std::string> notes_on(const std::vector<RankReport>& by_rank) {
  std::vector<std::string> notes;
  std::map<std::string, std::vector<int>> small_memory;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    const RankReport& report = by_rank[rank];
    if (report.shared_memory_bytes < kEnoughSharedMemory) {
      small_memory[fmt::format("/dev/shm on host {} has {} MiB", report.host,
                               report.shared_memory_bytes / kMebibyte)]
          .push_back(static_cast<int>(rank));
    }
    if (std::abs(report.clock_offset_seconds) >= kClockToleranceSeconds) {
      notes.push_back(
          fmt::format("the clock of rank {} (host {}) is {:.1f} s {} that of rank 0: times in logs of "
                      "different hosts cannot be "
                      "compared; let an NTP service set the clocks",
                      rank, report.host, std::abs(report.clock_offset_seconds),
                      report.clock_offset_seconds > 0 ? "ahead of" : "behind"));
    }
    if (!report.warning.empty()) notes.push_back(fmt::format("rank {}: {}", rank, report.warning));
  }
  for (const auto& [what, ranks] : small_memory) {
    notes.push_back(
        fmt::format("{} ({}), less than 1 GiB: many ranks or NCCL may run out of it; start the container "
                    "with --shm-size=1g",
                    what, rank_list(ranks)));
  }
  return notes;
}

}  // namespace amaxscope::launch
