#include <fmt/chrono.h>
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>
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

/// What an existing file has. Nothing says where a step ends: a kill in its write may have left a part of the
/// newest iteration's lines, and a line without its end that looks like one with fewer digits.
struct Existing {
  std::int64_t newest = kNoIteration;  ///< iteration
  std::uintmax_t newest_begins = 0;    ///< byte
  std::uintmax_t lines_end = 0;        ///< byte after the last newline
};

Existing read_existing(const AppendFile& file) {
  Existing existing;
  bool first = true;
  file.visit_lines_backward(AppendFile::Tail::kLeaveOut, [&](std::string_view line, std::uintmax_t begin) {
    const std::int64_t iteration = iteration_of(line);
    if (std::exchange(first, false)) {
      existing = {iteration, begin, begin + line.size() + 1};
      return true;
    }
    if (iteration != existing.newest) return false;
    existing.newest_begins = begin;
    return true;
  });
  return existing;
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
        existing_(read_existing(file_)) {}

  void record(const StatRecord& record) override {
    if (record.phase == Phase::kEval || record.phase == Phase::kRecompute) return;
    if (record.iteration < existing_.newest) return;
    if (lines_.empty()) iteration_ = record.iteration;
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
    if (lines_.empty()) return;
    const std::string lines = std::exchange(lines_, {});
    if (!std::exchange(went_on_, true)) {
      // The newest iteration is written anew as a whole when this run comes to it.
      if (iteration_ == existing_.newest) {
        file_.cut_from(existing_.newest_begins);
      } else if (file_.ends_in_line()) {
        file_.cut_from(existing_.lines_end);
      }
    }
    file_.append(lines);
  }

  AppendFile file_;
  std::shared_ptr<const Clock> clock_;
  Existing existing_;
  bool went_on_ = false;  ///< something was written by this run
  std::string lines_;
  std::int64_t iteration_ = kNoIteration;  ///< of the lines
};

}  // namespace

std::unique_ptr<Sink> make_text_sink(const std::filesystem::path& log_dir, int world_rank,
                                     std::shared_ptr<const Clock> clock) {
  return std::make_unique<TextSink>(log_dir, world_rank, std::move(clock));
}

}  // namespace amaxscope
