#include <fmt/format.h>

#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/sinks/append_file.hpp"
#include "runtime/sinks/file_sinks.hpp"
#include "runtime/sinks/json_text.hpp"
#include "runtime/sinks/record_lines.hpp"
#include "runtime/storage/json_limits.hpp"

namespace amaxscope {

namespace {

constexpr int kSchemaVersion = 1;
constexpr std::string_view kMarker = "\"end_of_step\":true";

/// The iteration of the last end-of-step marker: everything before it is complete.
std::int64_t last_completed_iteration(const AppendFile& file) {
  std::int64_t completed = std::numeric_limits<std::int64_t>::min();
  file.visit_lines_backward([&](std::string_view line) {
    if (line.find(kMarker) == std::string_view::npos || !json_excess(line).empty()) return true;
    const nlohmann::json marker = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!marker.is_object() || !marker.contains("end_of_step")) return true;
    const auto iteration = marker.find("iteration");
    if (iteration == marker.end() || !iteration->is_number_integer()) return true;
    completed = iteration->get<std::int64_t>();
    return false;
  });
  return completed;
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
    add(record.iteration, [&] { return json_line(record); });
  }

  void scalars(std::int64_t iteration, const Scalars& values) override {
    if (values.empty()) return;
    add(iteration, [&] { return json_line(iteration, values); });
  }

  void finding(const Finding& finding) override {
    add(finding.iteration, [&] { return json_line(finding); });
  }

  void event(std::int64_t iteration, const Event& event) override {
    add(iteration, [&] { return json_line(iteration, event); });
  }

  void end_of_step(std::int64_t iteration) override {
    if (lines_.empty()) return;
    fmt::format_to(std::back_inserter(lines_), "{{\"iteration\":{},{},\"records\":{}}}\n", iteration, kMarker,
                   count_);
    flush();
  }

  void end_of_run(std::int64_t last_iteration) override {
    fmt::format_to(std::back_inserter(lines_), "{{\"iteration\":{},\"end_of_run\":true}}\n", last_iteration);
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
