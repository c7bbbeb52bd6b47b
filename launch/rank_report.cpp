#include "launch/rank_report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "launch/failure.hpp"

namespace amaxscope::launch {

namespace {

/// "INFO on ranks 0-2; not set on rank 3", or nothing when there is one value only.
std::string split_by_value(const std::vector<std::string>& values) {
  std::map<std::string, std::vector<int>> ranks_of;
  for (std::size_t rank = 0; rank < values.size(); ++rank)
    ranks_of[values[rank]].push_back(static_cast<int>(rank));
  if (ranks_of.size() <= 1) return {};
  std::vector<std::string> parts;
  for (const auto& [value, ranks] : ranks_of)
    parts.push_back(fmt::format("{} on {}", value, rank_list(ranks)));
  return fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace

std::string to_text(const RankReport& report) {
  return nlohmann::json{{"host", report.host},
                        {"local_rank", report.local_rank},
                        {"cores", report.cores},
                        {"environment", report.environment},
                        {"config_digest", report.config_digest}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

RankReport parse_rank_report(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text);
  return {json.at("host"), json.at("local_rank"), json.at("cores"), json.at("environment"),
          json.at("config_digest")};
}

std::vector<std::vector<std::string>> rank_rows(const std::vector<RankReport>& by_rank) {
  const bool with_config =
      std::ranges::any_of(by_rank, [](const RankReport& report) { return !report.config_digest.empty(); });
  std::vector<std::vector<std::string>> rows = {{"rank", "host", "local rank", "cores"}};
  if (with_config) rows[0].emplace_back("config");
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    const RankReport& report = by_rank[rank];
    rows.push_back({fmt::format("{}", rank), report.host, fmt::format("{}", report.local_rank),
                    fmt::format("{}", report.cores)});
    if (with_config) rows.back().push_back(report.config_digest);
  }
  return rows;
}

std::vector<std::string> differences(const std::vector<RankReport>& by_rank) {
  std::map<std::string, std::vector<std::string>> values_of;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    for (const std::string& variable : by_rank[rank].environment) {
      const std::size_t equals = variable.find('=');
      auto& values = values_of[variable.substr(0, equals)];
      values.resize(by_rank.size(), "not set");
      values[rank] = equals == std::string::npos ? "" : variable.substr(equals + 1);
    }
  }
  std::vector<std::string> lines;
  for (const auto& [name, values] : values_of) {
    if (const std::string split = split_by_value(values); !split.empty()) {
      lines.push_back(fmt::format("{} differs: {}", name, split));
    }
  }
  std::vector<std::string> digests;
  for (const RankReport& report : by_rank) digests.push_back(report.config_digest);
  if (const std::string split = split_by_value(digests); !split.empty()) {
    lines.push_back(fmt::format("the config differs: {}", split));
  }
  return lines;
}

}  // namespace amaxscope::launch
