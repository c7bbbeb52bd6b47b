#include "collectives/roll_call.hpp"

#include <fmt/format.h>

#include <deque>
#include <set>
#include <utility>
#include <vector>

#include "collectives/exchange.hpp"
#include "collectives/flight_process.hpp"
#include "collectives/flight_reader.hpp"
#include "collectives/flight_text.hpp"
#include "core/error.hpp"

namespace amaxscope {

namespace {

constexpr std::size_t kMostRanksShown = 16;
constexpr std::size_t kCallsShown = 3;

/// Whether the rank has entered this collective of the group.
bool has_entered(const FlightStatus& status, const FlightGroup& group, std::uint64_t sequence) {
  const FlightGroup* own = status.find(group);
  return own != nullptr && own->calls > sequence;
}

/// What the rank does as this collective of the group; null when it is too long ago.
const FlightCall* call_at(const FlightRecord& record, const FlightGroup& group, std::uint64_t sequence) {
  for (const FlightCall& call : record.calls) {
    if (is_collective(call.operation) && call.sequence == sequence &&
        record.status.groups[call.group].same_as(group)) {
      return &call;
    }
  }
  return nullptr;
}

bool has_answered(const std::map<int, Inquiry::Answer>* answers, int rank, std::uint64_t sequence) {
  if (answers == nullptr) return false;
  const auto answer = answers->find(rank);
  return answer != answers->end() && answer->second.sequence == sequence;
}

/// Of a rank whose file says nothing.
std::string without_record(int rank, const std::map<int, Inquiry::Answer>* answers, const Error& error) {
  if (answers == nullptr) return fmt::format("not known: {}", error.what());
  const auto answer = answers->find(rank);
  if (answer != answers->end()) {
    return fmt::format("waits in another collective of the group: {} (it was asked by message)",
                       answer->second.call);
  }
  return fmt::format("has not answered by message, so it waits in no collective of this group; not known: {}",
                     error.what());
}

}  // namespace

const FlightStatus* RollCall::status_of(int rank, Statuses& known) const {
  const auto [place, fresh] = known.try_emplace(rank);
  if (fresh) {
    try {
      place->second = read_flight_status(FlightRecorder::file_of(own_.directory(), rank));
      if (place->second->updated < created_) place->second.reset();
    } catch (const Error&) {  // said by text()
    }
  }
  return place->second ? &*place->second : nullptr;
}

std::string RollCall::fate_of(const FlightStatus& status, const FlightGroup& group) const {
  if (process_state(status) == ProcessState::kGone) {
    return fmt::format("the process of rank {} is gone", status.world_rank);
  }
  const bool over = status.state == FlightState::kFailed || status.state == FlightState::kFinished;
  if (!over || has_entered(status, group, sequence_)) return {};
  return fmt::format("rank {} has {} ({})", status.world_rank, to_string(status.state), status.where);
}

RollCall::Look RollCall::look() {
  Look result;
  if (own_.directory().empty()) return result;
  const FlightStatus self = own_.status();
  const FlightGroup& group = self.groups[group_];
  Statuses known;
  std::string suspicion;
  for (const int rank : group.world_ranks) {
    const FlightStatus* status = rank == self.world_rank ? nullptr : status_of(rank, known);
    if (status == nullptr) continue;
    const FlightGroup* there = status->find(group);
    const bool left = there != nullptr && there->left_at && *there->left_at <= sequence_;
    if (left && !has_entered(*status, group, sequence_)) {
      result.hopeless = fmt::format("rank {} takes no more part in the traffic of {} ({})", rank, group.name,
                                    status->where);
      return result;
    }
    if (!suspicion.empty()) continue;
    suspicion = left ? fmt::format("rank {} has given this collective up", rank) : fate_of(*status, group);
  }
  const std::string circle = follow(self, known, result);
  if (suspicion.empty()) suspicion = circle;
  // The files are read one after the other while ranks get on: what is still so at the next look is true.
  if (suspicion == suspicion_) result.hopeless = suspicion;
  suspicion_ = std::move(suspicion);
  return result;
}

std::string RollCall::follow(const FlightStatus& self, Statuses& known, Look& look) {
  const FlightGroup& group = self.groups[group_];
  std::deque<int> wanted;
  for (const int rank : group.world_ranks) {
    const FlightStatus* status = rank == self.world_rank ? nullptr : status_of(rank, known);
    if (status != nullptr && !has_entered(*status, group, sequence_)) wanted.push_back(rank);
  }
  std::string circle;
  std::set<int> asked = {self.world_rank};
  for (; !wanted.empty(); wanted.pop_front()) {
    const int rank = wanted.front();
    const FlightStatus* status = status_of(rank, known);
    if (status == nullptr || !asked.insert(rank).second) continue;
    const auto [before, first] = progress_.try_emplace(rank, status->progress);
    look.moved = look.moved || (!first && before->second != status->progress);
    before->second = status->progress;
    if (!status->inside) continue;
    if (status->inside->world_peer) {
      wanted.push_back(*status->inside->world_peer);
      continue;
    }
    const FlightGroup& theirs = status->groups[status->inside->group];
    const std::uint64_t sequence = status->inside->sequence;
    for (const int member : theirs.world_ranks) {
      if (member == self.world_rank) {
        // This rank stays where it is, so that rank does, too.
        const FlightGroup* own = self.find(theirs);
        if (circle.empty() && own != nullptr && own->calls <= sequence) {
          circle = fmt::format("rank {} waits for this rank in {} call {}", rank, theirs.name, sequence);
        }
        continue;
      }
      const FlightStatus* other = status_of(member, known);
      if (other != nullptr && !has_entered(*other, theirs, sequence)) wanted.push_back(member);
    }
  }
  return circle;
}

std::vector<int> RollCall::unknown() const {
  const FlightStatus self = own_.status();
  Statuses known;
  std::vector<int> ranks = self.groups[group_].world_ranks;
  std::erase_if(ranks, [&](int rank) {
    return rank == self.world_rank || (!own_.directory().empty() && status_of(rank, known) != nullptr);
  });
  return ranks;
}

std::string RollCall::text(const std::map<int, Inquiry::Answer>* answers) const {
  if (own_.directory().empty() && answers == nullptr) {
    return "  not known: without a directory for flight records no rank can see another's";
  }
  const FlightRecord own = own_.record();
  const FlightStatus& self = own.status;
  const FlightGroup& group = self.groups[group_];
  const FlightCall* own_call = call_at(own, group, sequence_);
  const auto now = std::chrono::system_clock::now();
  std::vector<int> arrived;
  std::vector<std::string> lines;
  std::size_t hidden = 0;
  for (const int rank : group.world_ranks) {
    if (rank == self.world_rank) {
      arrived.push_back(rank);
      continue;
    }
    if (has_answered(answers, rank, sequence_)) {
      arrived.push_back(rank);
      continue;
    }
    try {
      AMAXSCOPE_CHECK(!own_.directory().empty(), ErrorCode::kIo, "there is no directory for flight records");
      const FlightRecord record = read_flight_record(FlightRecorder::file_of(own_.directory(), rank));
      const bool alive =
          process_state(record.status) != ProcessState::kGone && record.status.updated >= created_;
      const FlightCall* call = call_at(record, group, sequence_);
      const bool another = own_call != nullptr && call != nullptr && !call->same_as(*own_call);
      if (alive && !another && has_entered(record.status, group, sequence_)) {
        arrived.push_back(rank);
        continue;
      }
      if (lines.size() == kMostRanksShown) {
        ++hidden;
        continue;
      }
      std::string line = fmt::format("  rank {}: {}", rank, whereabouts(record, now));
      if (another) line = fmt::format("  rank {}: arrived with another call: {}", rank, describe(*call));
      if (record.status.updated < created_) {
        lines.push_back(line + "; before this rank began: perhaps the file of an earlier run");
        continue;
      }
      const std::size_t shown = std::min(record.calls.size(), kCallsShown);
      for (std::size_t i = record.calls.size() - shown; i < record.calls.size(); ++i) {
        line += fmt::format("\n    {}", describe_in_group(record.calls[i], record.status));
      }
      lines.push_back(std::move(line));
    } catch (const Error& error) {
      if (lines.size() == kMostRanksShown) {
        ++hidden;
      } else {
        lines.push_back(fmt::format("  rank {}: {}", rank, without_record(rank, answers, error)));
      }
    }
  }
  std::string text = fmt::format("  arrived: {}", rank_list(arrived));
  for (const std::string& line : lines) text += "\n" + line;
  if (hidden != 0) text += fmt::format("\n  and {} more that are not here", hidden);
  return text;
}

}  // namespace amaxscope
