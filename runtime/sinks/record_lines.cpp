#include "runtime/sinks/record_lines.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/sinks/json_text.hpp"

namespace amaxscope {

std::string json_line(const StatRecord& record) {
  std::string stats;
  std::string flags;
  std::string formats;
  for (const StatValue& stat : record.stats) {
    const std::string name = json_string(stat.name);
    stats += fmt::format("{}{}:{}", stats.empty() ? "" : ",", name, json_number(stat.value));
    if (!stat.format.empty()) {
      formats += fmt::format("{}{}:{}", formats.empty() ? "" : ",", name, json_string(stat.format));
    }
    if (stat.flags.empty()) continue;
    std::string list;
    for (const std::string& flag : stat.flags) list += (list.empty() ? "" : ",") + json_string(flag);
    flags += fmt::format("{}{}:[{}]", flags.empty() ? "" : ",", name, list);
  }
  return fmt::format(
      R"({{"iteration":{},"layer":{},"tensor":{},"phase":{},"stats":{{{}}},"flags":{{{}}},"recipe":{}{}{},"group":[{}],"layout":{}}})"
      "\n",
      record.iteration, json_string(record.layer), json_string(record.tensor),
      json_string(to_string(record.phase)), stats, flags, json_string(record.recipe),
      record.format.empty() ? "" : ",\"format\":" + json_string(record.format),
      formats.empty() ? "" : ",\"formats\":{" + formats + "}", fmt::join(record.group, ","),
      json_string(to_string(record.layout)));
}

std::string json_line(std::int64_t iteration, const Scalars& values) {
  std::string members;
  for (const auto& [name, value] : values) {
    members += fmt::format("{}{}:{}", members.empty() ? "" : ",", json_string(name), json_number(value));
  }
  return fmt::format("{{\"iteration\":{},\"scalars\":{{{}}}}}\n", iteration, members);
}

std::string json_line(const Finding& finding) {
  std::string details;
  for (const auto& [name, value] : finding.details) {
    details += fmt::format("{}{}:{}", details.empty() ? "" : ",", json_string(name), json_string(value));
  }
  return fmt::format(
      R"({{"iteration":{},"finding":{{"check":{},"layer":{},"tensor":{},"phase":{},"microbatch":{},"ranks":[{}],"what":{},"details":{{{}}}}}}})"
      "\n",
      finding.iteration, json_string(finding.check), json_string(finding.layer), json_string(finding.tensor),
      json_string(to_string(finding.phase)), finding.microbatch, fmt::join(finding.ranks, ","),
      json_string(finding.what), details);
}

std::string json_line(std::int64_t iteration, const Event& event) {
  return fmt::format(
      R"({{"iteration":{},"event":{{"kind":{},"feature":{},"check":{},"seen":{},"layer":{},"tensor":{},"ranks":[{}],"action":{},"what":{}}}}})"
      "\n",
      iteration, json_string(event.kind), json_string(event.feature), json_string(event.check),
      event.iteration, json_string(event.layer), json_string(event.tensor), fmt::join(event.ranks, ","),
      json_string(to_string(event.action)), json_string(event.what));
}

}  // namespace amaxscope
