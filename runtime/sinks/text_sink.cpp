#include <fmt/chrono.h>
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>

#include "runtime/sinks/append_file.hpp"
#include "runtime/sinks/file_sinks.hpp"

namespace amaxscope {

namespace {

constexpr std::string_view kIterationKey = " iteration=";
constexpr std::int64_t kNoIteration = std::numeric_limits<std::int64_t>::min();

std::int64_t iteration_of(std::string_view line) {
  std::int64_t iteration = kNoIteration;
  const std::size_t key = line.rfind(kIterationKey);
  if (key == std::string_view::npos) return iteration;
  line.remove_prefix(key + kIterationKey.size());
  std::from_chars(line.data(), line.data() + line.size(), iteration);
  return iteration;
}

/// The last iteration that is whole in the file. A step's lines are one write: when the file ends within a
/// line the newest iteration may lack some, and is written again.
std::int64_t last_whole_iteration(const AppendFile& file) {
  std::optional<std::int64_t> newest;
  std::int64_t whole = kNoIteration;
  file.visit_lines_backward([&](std::string_view line) {
    const std::int64_t iteration = iteration_of(line);
    if (!newest) newest = iteration;
    if (file.ends_in_line() && iteration == *newest) return true;
    whole = iteration;
    return false;
  });
  return whole;
}

/// "2026-01-31 05:11:57,884", local time, as Python's logging writes it.
std::string timestamp(std::chrono::system_clock::time_point now) {
  const auto whole = std::chrono::floor<std::chrono::seconds>(now);
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now - whole);
  return fmt::format("{:%Y-%m-%d %H:%M:%S},{:03}",
                     fmt::localtime(std::chrono::system_clock::to_time_t(whole)), ms.count());
}

/// A name on one line: parsers read line by line.
std::string one_line(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c == '\n' || c == '\r') {
      out += c == '\n' ? "\\n" : "\\r";
    } else {
      out += c;
    }
  }
  return out;
}

class TextSink final : public Sink {
 public:
  TextSink(const std::filesystem::path& log_dir, int world_rank, std::shared_ptr<const Clock> clock)
      : file_(log_dir / "nvdlfw_inspect_statistics_logs" /
              fmt::format("nvdlfw_inspect_globalrank-{}.log", world_rank)),
        clock_(clock ? std::move(clock) : std::make_shared<const Clock>()),
        written_before_(last_whole_iteration(file_)) {}

  void record(const StatRecord& record) override {
    if (record.phase == Phase::kEval || record.phase == Phase::kRecompute) return;
    if (record.iteration <= written_before_) return;
    const std::string head = fmt::format("{} - INFO - {}_{}_", timestamp(clock_->now()),
                                         one_line(record.layer), one_line(record.tensor));
    for (const StatValue& stat : record.stats) {
      if (stat.detail) continue;
      // The sign of a NaN means nothing, but would be printed.
      const double value = std::isnan(stat.value) ? std::numeric_limits<double>::quiet_NaN() : stat.value;
      fmt::format_to(std::back_inserter(lines_), "{}{} \t\t\t\t iteration={:06} \t\t\t\t value={:.9g}\n",
                     head, one_line(stat.name), record.iteration, value);
    }
  }
  void scalars(std::int64_t, const Scalars&) override {}
  void end_of_step(std::int64_t) override { flush(); }
  void close() override { flush(); }

 private:
  void flush() {
    const std::string lines = std::exchange(lines_, {});
    file_.append(lines);
  }

  AppendFile file_;
  std::shared_ptr<const Clock> clock_;
  std::int64_t written_before_;
  std::string lines_;
};

}  // namespace

std::unique_ptr<Sink> make_text_sink(const std::filesystem::path& log_dir, int world_rank,
                                     std::shared_ptr<const Clock> clock) {
  return std::make_unique<TextSink>(log_dir, world_rank, std::move(clock));
}

}  // namespace amaxscope
