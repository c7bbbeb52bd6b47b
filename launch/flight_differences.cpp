#include "launch/flight_differences.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "collectives/exchange.hpp"

namespace amaxscope::launch {

namespace {

using CallsBySequence = std::map<std::uint64_t, const FlightCall*>;

/// A group with the calls of each rank in it.
struct GroupCalls {
  FlightGroup group;
  std::map<int, CallsBySequence> by_rank;
};

std::vector<GroupCalls> calls_by_group(const std::vector<FlightRank>& ranks) {
  std::vector<GroupCalls> groups;
  for (const FlightRank& rank : ranks) {
    if (!rank.record) continue;
    for (const FlightCall& call : rank.record->calls) {
      const FlightGroup& group = rank.record->status.groups[call.group];
      if (!is_collective(call.operation) || group.world_ranks.size() < 2) continue;
      auto known =
          std::ranges::find_if(groups, [&](const GroupCalls& each) { return each.group.same_as(group); });
      if (known == groups.end()) known = groups.insert(groups.end(), {group, {}});
      known->by_rank[rank.rank][call.sequence] = &call;
    }
  }
  return groups;
}

const FlightCall* call_at(const CallsBySequence& calls, std::uint64_t sequence) {
  const auto found = calls.find(sequence);
  return found == calls.end() ? nullptr : found->second;
}

/// Ranks that made the same call, by their lowest rank.
std::vector<std::pair<std::vector<int>, const FlightCall*>> sides_of(const GroupCalls& group,
                                                                     std::uint64_t sequence) {
  std::vector<std::pair<std::vector<int>, const FlightCall*>> sides;
  for (const auto& [rank, calls] : group.by_rank) {
    const FlightCall* call = call_at(calls, sequence);
    if (call == nullptr) continue;
    auto same = std::ranges::find_if(sides, [&](const auto& side) { return side.second->same_as(*call); });
    if (same == sides.end()) same = sides.insert(sides.end(), {{}, call});
    same->first.push_back(rank);
  }
  return sides;
}

/// How a rank that differs came to it, from the calls before and after.
std::string explain(const CallsBySequence& one, const CallsBySequence& most, std::uint64_t sequence) {
  const FlightCall* own = call_at(one, sequence);
  const FlightCall* common = call_at(most, sequence);
  const FlightCall* own_next = call_at(one, sequence + 1);
  const FlightCall* common_next = call_at(most, sequence + 1);
  const bool skipped = common_next != nullptr && own->same_as(*common_next);
  const bool extra = own_next != nullptr && common->same_as(*own_next);
  if (skipped && extra) return "made two calls in another order";
  if (skipped) return "skipped a call that the others made";
  if (extra) return "made a call that the others did not make";
  if (own->what == common->what && own->layer == common->layer && own->tensor == common->tensor) {
    if (own->iteration != common->iteration) return "is in another iteration";
    if (own->operation != common->operation || own->op != common->op) return "does another operation";
    return "hands in another number or type of elements";
  }
  return "is in another place of the program";
}

}  // namespace

std::string name_of_call(const FlightGroup& group, std::uint64_t sequence) {
  return fmt::format("call {} of {} ({})", sequence, group.name, rank_list(group.world_ranks));
}

std::vector<FlightFinding> different_calls(const std::vector<FlightRank>& ranks) {
  std::vector<FlightFinding> findings;
  for (const GroupCalls& group : calls_by_group(ranks)) {
    std::map<std::uint64_t, bool> sequences;
    for (const auto& [rank, calls] : group.by_rank) {
      for (const auto& [sequence, call] : calls) sequences[sequence] = true;
    }
    for (const auto& [sequence, present] : sequences) {
      auto sides = sides_of(group, sequence);
      if (sides.size() < 2) continue;
      FlightFinding finding;
      finding.call = name_of_call(group.group, sequence);
      const auto most =
          std::ranges::max_element(sides, {}, [](const auto& side) { return side.first.size(); });
      finding.since = sides.front().second->begin;
      const CallsBySequence& common = group.by_rank.at(most->first.front());
      std::vector<std::string> ways;
      for (const auto& side : sides) {
        finding.since = std::min(finding.since, side.second->begin);
        finding.sides.emplace_back(side.first, describe(*side.second));
        if (&side == &*most) continue;
        finding.suspects.insert(finding.suspects.end(), side.first.begin(), side.first.end());
        ways.push_back(fmt::format("{} {}", rank_list(side.first),
                                   explain(group.by_rank.at(side.first.front()), common, sequence)));
      }
      finding.meaning = "The ranks of the group are in different calls";
      finding.meaning += fmt::format(": {}", fmt::join(ways, ", "));
      finding.meaning +=
          ". Every rank of a group must make the same calls in the same order; look for a branch that "
          "depends on the rank or on its data, or for other code or another config on these ranks.";
      // Without a majority nobody knows who is right.
      if (most->first.size() <= finding.suspects.size()) {
        finding.suspects.insert(finding.suspects.end(), most->first.begin(), most->first.end());
      }
      std::ranges::sort(finding.suspects);
      findings.push_back(std::move(finding));
      break;
    }
  }
  std::ranges::stable_sort(findings, {}, &FlightFinding::since);
  return findings;
}

}  // namespace amaxscope::launch
