#include "launch/rank_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace amaxscope::launch {

namespace {

constexpr std::uint64_t kMebibyte = 1U << 20U;

std::string limit_of(const RankReport& report, const std::string& name) {
  const auto limit = report.limits.find(name);
  return limit == report.limits.end() ? "unknown" : limit->second;
}

}  // namespace

std::string to_text(const RankReport& report) {
  return nlohmann::json{{"host", report.host},
                        {"local_rank", report.local_rank},
                        {"local_ranks", report.local_ranks},
                        {"device", report.device},
                        {"device_uuid", report.device_uuid},
                        {"cores", report.cores},
                        {"core_list", report.core_list},
                        {"versions", report.versions},
                        {"limits", report.limits},
                        {"shared_memory_bytes", report.shared_memory_bytes},
                        {"shared_memory_free_bytes", report.shared_memory_free_bytes},
                        {"clock_offset_seconds", report.clock_offset_seconds},
                        {"environment", report.environment},
                        {"warning", report.warning},
                        {"config_digest", report.config_digest}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

RankReport parse_rank_report(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text);
  return {.host = json.at("host"),
          .local_rank = json.at("local_rank"),
          .local_ranks = json.at("local_ranks"),
          .device = json.at("device"),
          .device_uuid = json.at("device_uuid"),
          .cores = json.at("cores"),
          .core_list = json.at("core_list"),
          .versions = json.at("versions"),
          .limits = json.at("limits"),
          .shared_memory_bytes = json.at("shared_memory_bytes"),
          .shared_memory_free_bytes = json.at("shared_memory_free_bytes"),
          .clock_offset_seconds = json.at("clock_offset_seconds"),
          .environment = json.at("environment"),
          .warning = json.at("warning"),
          .config_digest = json.at("config_digest")};
}

std::vector<std::vector<std::string>> rank_rows(const std::vector<RankReport>& by_rank) {
  const bool with_config =
      std::ranges::any_of(by_rank, [](const RankReport& report) { return !report.config_digest.empty(); });
  std::vector<std::vector<std::string>> rows = {{"rank", "host", "local rank", "device", "cores",
                                                 "locked memory", "open files", "/dev/shm free", "clock"}};
  if (with_config) rows[0].emplace_back("config");
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    const RankReport& report = by_rank[rank];
    const double offset = report.clock_offset_seconds;
    rows.push_back(
        {fmt::format("{}", rank), report.host, fmt::format("{} of {}", report.local_rank, report.local_ranks),
         report.device + (report.device_uuid.empty() ? "" : " " + report.device_uuid),
         fmt::format("{} ({})", report.cores, report.core_list), limit_of(report, "locked memory"),
         limit_of(report, "open files"), fmt::format("{} MiB", report.shared_memory_free_bytes / kMebibyte),
         std::abs(offset) < 0.05 ? "same" : fmt::format("{:+.1f} s", offset)});
    if (with_config) rows.back().push_back(report.config_digest.empty() ? "none" : report.config_digest);
  }
  return rows;
}

}  // namespace amaxscope::launch
