#include <fmt/format.h>

#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/sinks/append_file.hpp"
#include "runtime/sinks/file_sinks.hpp"
#include "runtime/sinks/json_text.hpp"

namespace amaxscope {

namespace {

constexpr int kSchemaVersion = 1;
constexpr std::string_view kMarker = "\"end_of_step\":true";

/// The iteration of the last end-of-step marker: everything before it is complete.
std::int64_t last_completed_iteration(const AppendFile& file) {
  std::int64_t completed = std::numeric_limits<std::int64_t>::min();
  file.visit_lines_backward([&](std::string_view line) {
    if (line.find(kMarker) == std::string_view::npos) return true;
    const nlohmann::json marker = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!marker.is_object() || !marker.contains("end_of_step")) return true;
    const auto iteration = marker.find("iteration");
    if (iteration == marker.end() || !iteration->is_number_integer()) return true;
    completed = iteration->get<std::int64_t>();
    return false;
  });
  return completed;
}

std::string line_of(const StatRecord& record) {
  std::string stats;
  std::string flags;
  for (const StatValue& stat : record.stats) {
    const std::string name = json_string(stat.name);
    stats += fmt::format("{}{}:{}", stats.empty() ? "" : ",", name, json_number(stat.value));
    if (stat.flags.empty()) continue;
    std::string list;
    for (const std::string& flag : stat.flags) list += (list.empty() ? "" : ",") + json_string(flag);
    flags += fmt::format("{}{}:[{}]", flags.empty() ? "" : ",", name, list);
  }
  return fmt::format(
      R"({{"iteration":{},"layer":{},"tensor":{},"phase":{},"stats":{{{}}},"flags":{{{}}},"recipe":{},"group":[{}],"layout":{}}})"
      "\n",
      record.iteration, json_string(record.layer), json_string(record.tensor),
      json_string(to_string(record.phase)), stats, flags, json_string(record.recipe),
      fmt::join(record.group, ","), json_string(to_string(record.layout)));
}

std::string line_of(const Finding& finding) {
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

std::string line_of(std::int64_t iteration, const Event& event) {
  return fmt::format(
      R"({{"iteration":{},"event":{{"kind":{},"feature":{},"check":{},"seen":{},"layer":{},"tensor":{},"ranks":[{}],"action":{},"what":{}}}}})"
      "\n",
      iteration, json_string(event.kind), json_string(event.feature), json_string(event.check),
      event.iteration, json_string(event.layer), json_string(event.tensor), fmt::join(event.ranks, ","),
      json_string(to_string(event.action)), json_string(event.what));
}

class JsonLinesSink final : public Sink {
 public:
  JsonLinesSink(const std::filesystem::path& log_dir, int world_rank, JsonLinesOptions options)
      : file_(log_dir / "metrics" / fmt::format("rank_{}.jsonl", world_rank)),
        options_(std::move(options)),
        written_before_(last_completed_iteration(file_)),
        header_(fmt::format("{{\"schema_version\":{},\"run_id\":{},\"rank\":{}}}\n", kSchemaVersion,
                            json_string(options_.run_id), world_rank)) {}

  void record(const StatRecord& record) override {
    if (!record.leader && !options_.every_rank) return;
    add(record.iteration, [&] { return line_of(record); });
  }

  void scalars(std::int64_t iteration, const Scalars& values) override {
    if (values.empty()) return;
    add(iteration, [&] {
      std::string members;
      for (const auto& [name, value] : values) {
        members += fmt::format("{}{}:{}", members.empty() ? "" : ",", json_string(name), json_number(value));
      }
      return fmt::format("{{\"iteration\":{},\"scalars\":{{{}}}}}\n", iteration, members);
    });
  }

  void finding(const Finding& finding) override {
    add(finding.iteration, [&] { return line_of(finding); });
  }

  void event(std::int64_t iteration, const Event& event) override {
    add(iteration, [&] { return line_of(iteration, event); });
  }

  void end_of_step(std::int64_t iteration) override {
    if (lines_.empty()) return;
    fmt::format_to(std::back_inserter(lines_), "{{\"iteration\":{},{},\"records\":{}}}\n", iteration, kMarker,
                   count_);
    flush();
  }

  void close() override { flush(); }

 private:
  template <class MakeLine>
  void add(std::int64_t iteration, const MakeLine& make_line) {
    if (iteration <= written_before_) return;
    lines_ += make_line();
    ++count_;
  }

  void flush() {
    if (lines_.empty()) return;
    const std::string lines = std::exchange(header_, {}) + std::exchange(lines_, {});
    count_ = 0;
    file_.append(lines);
  }

  AppendFile file_;
  JsonLinesOptions options_;
  std::int64_t written_before_;
  std::string header_;  ///< goes out with the first lines, then empty
  std::string lines_;
  std::int64_t count_ = 0;
};

}  // namespace

std::unique_ptr<Sink> make_json_lines_sink(const std::filesystem::path& log_dir, int world_rank,
                                           JsonLinesOptions options) {
  return std::make_unique<JsonLinesSink>(log_dir, world_rank, std::move(options));
}

}  // namespace amaxscope
