#include "launch/flight_diagnosis.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "collectives/exchange.hpp"
#include "collectives/flight_text.hpp"
#include "launch/flight_differences.hpp"

namespace amaxscope::launch {

namespace {

using Time = std::chrono::system_clock::time_point;

/// Ranks that are blocked in one call, or one rank that is blocked on a message.
struct Waiting {
  FlightGroup group;
  std::uint64_t sequence = 0;
  std::optional<int> peer;  ///< of a message
  std::vector<int> ranks;
  std::vector<int> missing;  ///< whom they wait for
  std::string call;
  Time since;
};

class Diagnosis {
 public:
  Diagnosis(const std::vector<FlightRank>& ranks, Time now, std::chrono::system_clock::duration stuck_after)
      : now_(now), stuck_after_(stuck_after) {
    for (const FlightRank& rank : ranks) by_rank_[rank.rank] = &rank;
    all_gone_ = std::ranges::all_of(
        ranks, [](const FlightRank& rank) { return rank.process == ProcessState::kGone; });
    collect_waiting();
  }

  [[nodiscard]] std::vector<FlightFinding> stuck_calls() {
    std::vector<FlightFinding> findings;
    for (const Waiting& waiting : waiting_) {
      if (!is_stuck(waiting)) continue;
      const std::vector<int> suspects = suspects_of(waiting);
      // Calls that wait for the same ranks through others are consequences.
      const auto known = std::ranges::find(findings, suspects, &FlightFinding::suspects);
      if (known != findings.end()) {
        known->sides.emplace_back(waiting.ranks, fmt::format("waiting in {}", waiting.call));
        continue;
      }
      findings.push_back(finding_of(waiting, suspects));
    }
    return findings;
  }

  /// Ranks in trouble that no finding has named.
  [[nodiscard]] std::vector<FlightFinding> troubled(const std::vector<FlightFinding>& findings) const {
    std::map<std::string, std::vector<int>> by_trouble;
    for (const auto& [rank, found] : by_rank_) {
      const bool named =
          !all_gone_ && std::ranges::any_of(findings, [&, r = rank](const FlightFinding& finding) {
            return std::ranges::find(finding.suspects, r) != finding.suspects.end();
          });
      const std::string trouble = trouble_of(*found);
      if (!named && !trouble.empty()) by_trouble[trouble].push_back(rank);
    }
    std::vector<FlightFinding> result;
    for (const auto& [trouble, ranks] : by_trouble) {
      FlightFinding finding;
      finding.suspects = ranks;
      finding.meaning = fmt::format("{}: {}", rank_list(ranks), trouble);
      result.push_back(std::move(finding));
    }
    return result;
  }

 private:
  [[nodiscard]] const FlightRank* find(int rank) const {
    const auto found = by_rank_.find(rank);
    return found == by_rank_.end() ? nullptr : found->second;
  }

  void collect_waiting() {
    for (const auto& [rank, found] : by_rank_) {
      if (!found->record || !found->record->status.inside) continue;
      const FlightCall* call = current_call(*found->record);
      if (call == nullptr) continue;
      const FlightStatus& status = found->record->status;
      const FlightWait& wait = *status.inside;
      const FlightGroup& group = status.groups[wait.group];
      auto known = std::ranges::find_if(waiting_, [&](const Waiting& each) {
        return !wait.world_peer && !each.peer && each.group.same_as(group) && each.sequence == wait.sequence;
      });
      if (known == waiting_.end()) {
        Waiting fresh{group, wait.sequence, wait.world_peer, {}, {}, {}, call->begin};
        fresh.call =
            wait.world_peer ? fmt::format("a message in {}", group.name) : name_of_call(group, wait.sequence);
        known = waiting_.insert(waiting_.end(), std::move(fresh));
      }
      known->ranks.push_back(rank);
      known->since = std::min(known->since, call->begin);
    }
    for (Waiting& waiting : waiting_) {
      if (waiting.peer) waiting.missing = {*waiting.peer};
      for (const int member : waiting.peer ? std::vector<int>() : waiting.group.world_ranks) {
        const FlightRank* found = find(member);
        const FlightGroup* there =
            found == nullptr || !found->record ? nullptr : found->record->status.find(waiting.group);
        if (there == nullptr || there->calls <= waiting.sequence) waiting.missing.push_back(member);
      }
      // Who has come but is stopped or gone does not wait: it holds up the others.
      std::erase_if(waiting.ranks, [&](int rank) {
        if (!is_held(rank)) return false;
        waiting.missing.push_back(rank);
        return true;
      });
      for (const int rank : waiting.ranks) waits_for_[rank] = waiting.missing;
    }
    std::erase_if(waiting_, [](const Waiting& waiting) { return waiting.ranks.empty(); });
    std::ranges::stable_sort(waiting_, {}, &Waiting::since);
  }

  /// What is wrong with a rank whatever the others do; empty: nothing to be seen.
  [[nodiscard]] static std::string trouble_of(const FlightRank& rank) {
    if (!rank.record) return rank.trouble;
    const FlightStatus& status = rank.record->status;
    switch (status.state) {
      case FlightState::kFailed:
        return fmt::format("has failed: {}", status.where);
      case FlightState::kDetached:
        if (rank.process == ProcessState::kGone) break;
        return fmt::format("has stopped observing ({}); the training itself may go on", status.where);
      case FlightState::kFinished:
        return {};
      case FlightState::kStarting:
      case FlightState::kTraining:
        break;
    }
    if (rank.process == ProcessState::kGone) {
      return "the process has ended without finishing: look for its last message, for a signal in the "
             "launcher's "
             "output, and for an out-of-memory kill in the kernel's log";
    }
    if (rank.process == ProcessState::kStopped) {
      return fmt::format(
          "the process is stopped (state T), by a signal or a debugger: `kill -CONT {}` on {} lets it "
          "go on",
          status.pid, status.host);
    }
    return {};
  }

  [[nodiscard]] bool is_held(int rank) const {
    const ProcessState process = find(rank)->process;
    return process == ProcessState::kStopped || (process == ProcessState::kGone && !all_gone_);
  }

  [[nodiscard]] bool silent(int rank) const {
    const FlightRank* found = find(rank);
    return found == nullptr || !found->record || now_ - found->record->status.updated > stuck_after_;
  }

  [[nodiscard]] bool is_stuck(const Waiting& waiting) const {
    const auto troubled = [this, &waiting](int rank) {
      const FlightRank* found = find(rank);
      if (found == nullptr || !found->record) return false;
      if (!trouble_of(*found).empty() || found->record->status.state == FlightState::kFinished) return true;
      const FlightGroup* there = found->record->status.find(waiting.group);
      return there != nullptr && there->left_at && *there->left_at <= waiting.sequence;
    };
    if (std::ranges::any_of(waiting.missing, troubled)) return true;
    if (all_gone_) return false;
    if (now_ - waiting.since <= stuck_after_) return false;
    return std::ranges::all_of(waiting.missing, [this](int rank) { return silent(rank); });
  }

  /// Those at the ends of the chain of who waits for whom; a circle has no end, so all of it.
  [[nodiscard]] std::vector<int> suspects_of(const Waiting& waiting) const {
    std::set<int> seen(waiting.missing.begin(), waiting.missing.end());
    std::vector<int> open(waiting.missing.begin(), waiting.missing.end());
    std::set<int> ends;
    while (!open.empty()) {
      const int rank = open.back();
      open.pop_back();
      const auto next = waits_for_.find(rank);
      if (next == waits_for_.end() || next->second.empty()) {
        ends.insert(rank);
        continue;
      }
      for (const int other : next->second) {
        if (seen.insert(other).second) open.push_back(other);
      }
    }
    const std::set<int>& result = ends.empty() ? seen : ends;
    return {result.begin(), result.end()};
  }

  [[nodiscard]] FlightFinding finding_of(const Waiting& waiting, const std::vector<int>& suspects) const {
    FlightFinding finding;
    finding.call = waiting.call;
    finding.suspects = suspects;
    finding.since = waiting.since;
    const FlightCall* call = current_call(*find(waiting.ranks.front())->record);
    finding.sides.emplace_back(waiting.ranks, describe(*call));
    for (const int rank : waiting.missing) finding.sides.emplace_back(std::vector{rank}, place_of(rank));
    for (const int rank : suspects) {
      if (std::ranges::find(waiting.missing, rank) == waiting.missing.end()) {
        finding.sides.emplace_back(std::vector{rank}, place_of(rank));
      }
    }
    finding.meaning = meaning_of(waiting, suspects);
    return finding;
  }

  [[nodiscard]] std::string place_of(int rank) const {
    const FlightRank* found = find(rank);
    if (found == nullptr) return "not known: no such rank";
    return found->record ? whereabouts(*found->record, now_) : "not known: " + found->trouble;
  }

  [[nodiscard]] std::string meaning_of(const Waiting& waiting, const std::vector<int>& suspects) const {
    const double waited = std::chrono::duration<double>(now_ - waiting.since).count();
    if (all_gone_) {
      return fmt::format(
          "The job has ended while {} waited here for {}. Which process ended first is said by the "
          "launcher's output.",
          rank_list(waiting.ranks), rank_list(waiting.missing));
    }
    if (waiting.missing.empty()) {
      return fmt::format(
          "All ranks of the group are in this call and it has not completed for {:.1f} s: the network "
          "or the library underneath holds it up.",
          waited);
    }
    const bool circle = std::ranges::all_of(suspects, [this](int rank) {
      const auto waits = waits_for_.find(rank);
      return waits != waits_for_.end() && !waits->second.empty();
    });
    if (circle) {
      return fmt::format(
          "{} wait for each other in different calls and will never get on: look for the branch in "
          "which they took different ways.",
          rank_list(suspects));
    }
    for (const int rank : suspects) {
      const FlightRank* found = find(rank);
      if (found == nullptr) continue;
      std::string trouble = trouble_of(*found);
      if (trouble.empty() && found->record && found->record->status.state == FlightState::kFinished) {
        trouble = "has finished and will not come";
      }
      if (!trouble.empty()) return fmt::format("The others wait for rank {}: {}.", rank, trouble);
    }
    return fmt::format(
        "{} has not come here for {:.1f} s and reports nothing: it is busy or blocked outside of the "
        "recorded operations (reading, writing, computing, another library). `gdb -p PID` or `py-spy` "
        "on it shows where.",
        rank_list(suspects), waited);
  }

  Time now_;
  std::chrono::system_clock::duration stuck_after_;
  std::map<int, const FlightRank*> by_rank_;
  bool all_gone_ = false;
  std::vector<Waiting> waiting_;
  std::map<int, std::vector<int>> waits_for_;
};

}  // namespace

std::vector<FlightFinding> diagnose(const std::vector<FlightRank>& ranks, Time now,
                                    std::chrono::system_clock::duration stuck_after) {
  std::vector<FlightFinding> findings = different_calls(ranks);
  Diagnosis diagnosis(ranks, now, stuck_after);
  for (FlightFinding& finding : diagnosis.stuck_calls()) findings.push_back(std::move(finding));
  for (FlightFinding& finding : diagnosis.troubled(findings)) findings.push_back(std::move(finding));
  return findings;
}

}  // namespace amaxscope::launch
