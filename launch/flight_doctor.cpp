#include "launch/flight_doctor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "collectives/exchange.hpp"
#include "collectives/flight_recorder.hpp"
#include "collectives/flight_text.hpp"
#include "core/error.hpp"
#include "launch/flight_diagnosis.hpp"
#include "launch/terminal.hpp"
#include "launch/text.hpp"

namespace amaxscope::launch {

namespace {

namespace fs = std::filesystem;
using Time = std::chrono::system_clock::time_point;

constexpr std::size_t kWidth = 110;

/// The ranks with a file in the directory.
std::set<int> ranks_in(const fs::path& directory) {
  std::set<int> ranks;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename().string();
    int rank = -1;
    if (!name.starts_with("rank_") || entry.path().extension() != ".flight") continue;
    const auto [end, failure] = std::from_chars(name.data() + 5, name.data() + name.size(), rank);
    if (failure == std::errc() && std::string_view(end) == ".flight" && rank >= 0) ranks.insert(rank);
  }
  return ranks;
}

fs::path directory_of_records(const fs::path& given) {
  std::error_code error;
  AMAXSCOPE_CHECK(fs::is_directory(given, error), ErrorCode::kInput,
                  "--flight {}: there is no such directory", given.string());
  if (!ranks_in(given).empty()) return given;
  AMAXSCOPE_CHECK(
      !ranks_in(given / "flight").empty(), ErrorCode::kInput,
      "--flight {}: holds no flight records (rank_0.flight, ...), nor does {}; a run with a debug config "
      "keeps them in flight/ of its log directory",
      given.string(), (given / "flight").string());
  return given / "flight";
}

/// Every rank of the job, whether it has a file or not. Files of an earlier, larger job are left out.
std::vector<FlightRank> read_ranks(const fs::path& directory) {
  std::vector<FlightRank> ranks;
  Time newest{};
  int world_size = 0;
  const std::set<int> present = ranks_in(directory);
  for (const int rank : present) {
    const FlightRank& found = ranks.emplace_back(read_rank(directory, rank));
    if (!found.record) continue;
    if (world_size == 0 || found.record->status.created > newest) {
      newest = found.record->status.created;
      world_size = found.record->status.world_size;
    }
  }
  AMAXSCOPE_CHECK(world_size > 0, ErrorCode::kInput, "--flight {}: none of its records can be read: {}",
                  directory.string(), ranks.front().trouble);
  std::erase_if(ranks, [&](const FlightRank& rank) { return rank.rank >= world_size; });
  for (int rank = 0; rank < world_size; ++rank) {
    if (present.contains(rank)) continue;
    FlightRank& missing = ranks.emplace_back();
    missing.rank = rank;
    missing.trouble = fmt::format("there is no {} in {}: this rank has not started yet, or writes elsewhere",
                                  FlightRecorder::file_of("", rank).string(), directory.string());
  }
  std::ranges::sort(ranks, {}, &FlightRank::rank);
  return ranks;
}

double age(Time then, Time now) { return std::max(0.0, std::chrono::duration<double>(now - then).count()); }

std::vector<std::vector<std::string>> rows_of(const std::vector<FlightRank>& ranks, Time now) {
  std::vector<std::vector<std::string>> rows = {
      {"rank", "host", "pid", "state", "iteration", "where", "last call", "since"}};
  for (const FlightRank& rank : ranks) {
    if (!rank.record) {
      rows.push_back({fmt::format("{}", rank.rank), "?", "?", "unknown", "", "", "", ""});
      continue;
    }
    const FlightStatus& status = rank.record->status;
    const FlightCall* last = rank.record->calls.empty() ? nullptr : &rank.record->calls.back();
    rows.push_back({fmt::format("{}", rank.rank), status.host, fmt::format("{}", status.pid),
                    flight_state(rank), fmt::format("{}", status.iteration), status.where,
                    last == nullptr ? "none" : describe_in_group(*last, status),
                    fmt::format("{:.1f} s", age(status.updated, now))});
  }
  return rows;
}

void print_text(const fs::path& directory, const std::vector<FlightRank>& ranks,
                const std::vector<FlightFinding>& findings, Time now) {
  std::string text = fmt::format("{}: {} rank{}\n\n{}", directory.string(), ranks.size(),
                                 ranks.size() == 1 ? "" : "s", table(rows_of(ranks, now)));
  for (const FlightFinding& finding : findings) {
    text += "\n";
    if (!finding.call.empty()) {
      text +=
          fmt::format("{}: {}, since {:.1f} s\n", &finding == &findings.front() ? "first divergence" : "also",
                      finding.call, age(finding.since, now));
    }
    for (const auto& [side, what] : finding.sides) text += fmt::format("  {}: {}\n", rank_list(side), what);
    if (!finding.call.empty() && !finding.suspects.empty()) {
      text += fmt::format("  suspect: {}\n", rank_list(finding.suspects));
    }
    text += wrapped(finding.meaning, finding.call.empty() ? 0 : 2, kWidth);
  }
  if (findings.empty()) text += "\nnothing wrong to be seen\n";
  say(stdout, text);
}

nlohmann::json as_json(const FlightRank& rank, Time now) {
  nlohmann::json json = {{"rank", rank.rank}};
  if (!rank.record) {
    json["trouble"] = rank.trouble;
    return json;
  }
  const FlightStatus& status = rank.record->status;
  json["host"] = status.host;
  json["pid"] = status.pid;
  json["process"] = to_string(rank.process);
  json["state"] = flight_state(rank);
  json["iteration"] = status.iteration;
  json["where"] = status.where;
  json["seconds_since_update"] = age(status.updated, now);
  json["calls"] = nlohmann::json::array();
  for (const FlightCall& call : rank.record->calls) {
    json["calls"].push_back({{"group", status.groups[call.group].name},
                             {"ranks", status.groups[call.group].world_ranks},
                             {"sequence", call.sequence},
                             {"call", describe(call)},
                             {"traffic", to_string(call.traffic)},
                             {"completed", call.outcome == FlightOutcome::kCompleted},
                             {"seconds_since_begin", age(call.begin, now)}});
  }
  return json;
}

void print_json(const fs::path& directory, const std::vector<FlightRank>& ranks,
                const std::vector<FlightFinding>& findings, Time now) {
  nlohmann::json json = {{"directory", directory.string()},
                         {"ranks", nlohmann::json::array()},
                         {"findings", nlohmann::json::array()}};
  for (const FlightRank& rank : ranks) json["ranks"].push_back(as_json(rank, now));
  for (const FlightFinding& finding : findings) {
    nlohmann::json sides = nlohmann::json::array();
    for (const auto& [side, what] : finding.sides) sides.push_back({{"ranks", side}, {"does", what}});
    json["findings"].push_back({{"call", finding.call},
                                {"sides", std::move(sides)},
                                {"suspects", finding.suspects},
                                {"meaning", finding.meaning}});
  }
  // Names may hold any bytes.
  fmt::print("{}\n", json.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
}

}  // namespace

std::vector<FlightRank> flight_ranks(const fs::path& directory) {
  return read_ranks(directory_of_records(directory));
}

std::string flight_state(const FlightRank& rank) {
  const FlightStatus& status = rank.record->status;
  if (has_died(rank)) return "gone";
  if (rank.process == ProcessState::kStopped) return "stopped";
  if (current_call(*rank.record) != nullptr && status.state == FlightState::kTraining)
    return "in a collective";
  return std::string(to_string(status.state));
}

ExitStatus flight_doctor(const FlightDoctorOptions& options) {
  AMAXSCOPE_CHECK(options.stuck_after_seconds >= 0, ErrorCode::kUsage, "--stuck-after {}: is negative",
                  options.stuck_after_seconds);
  const fs::path directory = directory_of_records(options.directory);
  const std::vector<FlightRank> ranks = read_ranks(directory);
  const Time now = std::chrono::system_clock::now();
  const auto stuck_after = std::chrono::duration_cast<std::chrono::system_clock::duration>(
      std::chrono::duration<double>(options.stuck_after_seconds));
  const std::vector<FlightFinding> findings = diagnose(ranks, now, stuck_after);
  if (options.json) {
    print_json(directory, ranks, findings, now);
  } else {
    print_text(directory, ranks, findings, now);
  }
  return findings.empty() ? kDone : kAnswerIsNo;
}

}  // namespace amaxscope::launch
