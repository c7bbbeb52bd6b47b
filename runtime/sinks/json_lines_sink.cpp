#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
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

constexpr std::string_view kEnd = "\"end_of_run\":true";

/// What an existing file has.
struct Existing {
  /// The iteration of the last end-of-step marker: everything before it is complete.
  std::int64_t completed = std::numeric_limits<std::int64_t>::min();
  /// That of the end of a run, if nothing came after it.
  std::int64_t ended = std::numeric_limits<std::int64_t>::min();
};

/// Of the line that has this member; none where it is a part of a name.
std::optional<std::int64_t> iteration_of(std::string_view line, const char* member) {
  if (!json_excess(line).empty()) return std::nullopt;
  const nlohmann::json marker = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!marker.is_object() || !marker.contains(member)) return std::nullopt;
  const auto iteration = marker.find("iteration");
  if (iteration == marker.end() || !iteration->is_number_integer()) return std::nullopt;
  return iteration->get<std::int64_t>();
}

Existing read_existing(const AppendFile& file) {
  Existing existing;
  file.visit_lines_backward(AppendFile::Tail::kAsLine, [&](std::string_view line, std::uintmax_t) {
    if (line.find(kEnd) != std::string_view::npos) {
      existing.ended = std::max(existing.ended, iteration_of(line, "end_of_run").value_or(existing.ended));
    }
    if (line.find(kMarker) == std::string_view::npos) return true;
    const std::optional<std::int64_t> completed = iteration_of(line, "end_of_step");
    existing.completed = completed.value_or(existing.completed);
    return !completed;
  });
  return existing;
}

class JsonLinesSink final : public Sink {
 public:
  JsonLinesSink(const std::filesystem::path& log_dir, int world_rank, JsonLinesOptions options)
      : file_(log_dir / "metrics" / fmt::format("rank_{}.jsonl", world_rank)),
        options_(std::move(options)),
        existing_(read_existing(file_)),
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
    // Of this step or an earlier one, found in this step: whether it is written already is known at its end.
    lines_ += json_line(finding);
    ++count_;
  }

  void event(std::int64_t iteration, const Event& event) override {
    add(iteration, [&] { return json_line(iteration, event); });
  }

  void end_of_step(std::int64_t iteration) override {
    if (iteration <= existing_.completed) forget();
    if (lines_.empty()) return;
    fmt::format_to(std::back_inserter(lines_), "{{\"iteration\":{},{},\"records\":{}}}\n", iteration, kMarker,
                   count_);
    flush();
  }

  void end_of_run(std::int64_t last_iteration) override {
    if (last_iteration <= existing_.ended) forget();
    fmt::format_to(std::back_inserter(lines_), "{{\"iteration\":{},{}}}\n", last_iteration, kEnd);
    flush();
  }

  void close() override { flush(); }

 private:
  template <class MakeLine>
  void add(std::int64_t iteration, const MakeLine& make_line) {
    if (iteration <= existing_.completed) return;
    lines_ += make_line();
    ++count_;
  }

  void forget() {
    lines_.clear();
    count_ = 0;
  }

  void flush() {
    if (lines_.empty()) return;
    const std::string lines = std::exchange(header_, {}) + std::exchange(lines_, {});
    count_ = 0;
    file_.append(lines);
  }

  AppendFile file_;
  JsonLinesOptions options_;
  Existing existing_;
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
