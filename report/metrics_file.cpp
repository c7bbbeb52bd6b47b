#include "report/metrics_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.hpp"
#include "report/json_values.hpp"
#include "report/words.hpp"
#include "runtime/sinks/run_file.hpp"
#include "runtime/storage/json_limits.hpp"

namespace amaxscope::report {

namespace {

using nlohmann::json;

constexpr std::size_t kLongestName = 1024;  ///< of a layer, tensor, check; such a line is left out
constexpr std::size_t kLongestText = 2000;  ///< of a sentence; cut off
constexpr std::size_t kMostDetails = 32;

std::map<std::string, double> numbers_of(const json& object) {
  std::map<std::string, double> numbers;
  for (const auto& [name, value] : object.items()) {
    if (const auto number = number_of(value)) numbers[name] = *number;
  }
  return numbers;
}

/// Understands one line and hands on what it says.
class Line {
 public:
  Line(const std::string& file, std::int64_t rank, bool& other_version, Reading& reading,
       RecordVisitor& visitor)
      : file_(file), rank_(rank), other_version_(other_version), reading_(reading), visitor_(visitor) {}

  /// False: not of the known shape. ends_step: whether it is the end of a step.
  bool understood(const std::string& text, bool& ends_step) {
    if (!json_excess(text).empty()) return false;
    const json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!object.is_object()) return false;
    if (object.contains("schema_version")) return opening(object);
    const auto iteration = integer_of(object, "iteration");
    if (!iteration) return false;
    if (object.contains("end_of_step")) return ends_step = marker(*iteration);
    if (object.contains("end_of_run")) return true;
    if (const auto found = object.find("finding"); found != object.end()) return finding(*iteration, *found);
    if (const auto found = object.find("scalars"); found != object.end()) {
      if (!found->is_object()) return false;
      visitor_.scalars(*iteration, numbers_of(*found));
      return true;
    }
    if (object.contains("event")) return object["event"].is_object();
    return record(*iteration, object);
  }

 private:
  bool opening(const json& object) {
    visitor_.run_begins();
    if (integer_of(object, "schema_version") == RunDescription::kSchemaVersion) return true;
    if (!std::exchange(other_version_, true)) {
      reading_.problems.push_back(
          fmt::format("{} has another schema version than {}; what is read from it may be wrong", file_,
                      RunDescription::kSchemaVersion));
    }
    return true;
  }

  bool marker(std::int64_t iteration) {
    ++reading_.completed_steps;
    reading_.first_step = std::min(reading_.first_step.value_or(iteration), iteration);
    visitor_.end_of_step(iteration);
    reading_.last_step = std::max(reading_.last_step.value_or(iteration), iteration);
    return true;
  }

  bool finding(std::int64_t iteration, const json& object) {
    if (!object.is_object() || text_of(object, "check").empty()) return false;
    for (const char* name : {"check", "layer", "tensor", "phase"}) {
      if (text_of(object, name).size() > kLongestName) return false;
    }
    FindingLine line{.iteration = iteration,
                     .check = text_of(object, "check"),
                     .layer = text_of(object, "layer"),
                     .tensor = text_of(object, "tensor"),
                     .phase = text_of(object, "phase"),
                     .microbatch = integer_of(object, "microbatch").value_or(0),
                     .ranks = integers_of(object, "ranks"),
                     .what = text_of(object, "what").substr(0, kLongestText),
                     .details = {}};
    if (const auto details = object.find("details"); details != object.end() && details->is_object()) {
      for (const auto& [name, value] : details->items()) {
        if (!value.is_string() || name.size() > kLongestName || line.details.size() >= kMostDetails) continue;
        line.details[name] = value.get<std::string>().substr(0, kLongestText);
      }
    }
    visitor_.finding(line);
    return true;
  }

  bool record(std::int64_t iteration, const json& object) {
    const auto stats = object.find("stats");
    RecordLine line;
    line.iteration = iteration;
    line.layer = text_of(object, "layer");
    line.tensor = text_of(object, "tensor");
    line.phase = text_of(object, "phase");
    if (stats == object.end() || !stats->is_object() || line.layer.empty() || line.tensor.empty())
      return false;
    if (std::max(line.layer.size(), line.tensor.size()) > kLongestName) return false;
    line.recipe = text_of(object, "recipe");
    line.format = text_of(object, "format");
    line.layout = text_of(object, "layout");
    line.group = integers_of(object, "group");
    line.rank = rank_;
    line.stats = numbers_of(*stats);
    if (const auto formats = object.find("formats"); formats != object.end() && formats->is_object()) {
      for (const auto& [name, value] : formats->items()) {
        if (value.is_string()) line.formats[name] = value.get<std::string>();
      }
    }
    if (const auto flags = object.find("flags"); flags != object.end() && flags->is_object()) {
      for (const auto& [name, value] : flags->items()) line.flags[name] = texts_of(*flags, name.c_str());
    }
    visitor_.record(line);
    return true;
  }

  const std::string& file_;
  std::int64_t rank_;
  bool& other_version_;
  Reading& reading_;
  RecordVisitor& visitor_;
};

}  // namespace

void MetricsFile::count_unreadable(Reading& reading) {
  if (reading.unreadable++ == 0) reading.first_unreadable = fmt::format("{}:{}", name_, line_);
}

bool MetricsFile::open(Reading& reading) {
  if (refused_) return false;
  if (opened_) return true;
  try {
    opened_ = lines_.open();
  } catch (const Error& error) {
    refused_ = true;
    reading.problems.push_back(printable(error.what()));
  }
  if (opened_) ++reading.files;
  return opened_;
}

bool MetricsFile::read_step(Reading& reading, RecordVisitor& visitor) {
  if (!open(reading)) return false;
  bool whole = true;
  while (const std::optional<std::string> text = lines_.next(whole)) {
    ++line_;
    ++reading.lines;
    bool ends_step = false;
    if (!whole || !Line(name_, rank_, other_version_, reading, visitor).understood(*text, ends_step)) {
      count_unreadable(reading);
    }
    if (ends_step) return true;
  }
  if (lines_.gave_up() && !std::exchange(said_, true)) {
    reading.problems.push_back(fmt::format("{}:{}: a line of more than {} MiB; the file is read no further",
                                           name_, line_ + 1, LineReader::kMostWithoutEnd >> 20U));
  }
  return false;
}

void MetricsFile::finish(Reading& reading) {
  if (!lines_.has_rest()) return;
  ++line_;
  ++reading.lines;
  count_unreadable(reading);
  lines_.drop_rest();
}

std::optional<std::uint64_t> rank_of_metrics(const std::filesystem::path& file) {
  constexpr std::string_view kPrefix = "rank_";
  constexpr std::string_view kSuffix = ".jsonl";
  const std::string name = file.filename().string();
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return std::nullopt;
  const char* const last = name.data() + name.size() - kSuffix.size();
  std::uint64_t rank = 0;
  const auto parsed = std::from_chars(name.data() + kPrefix.size(), last, rank);
  constexpr auto kLargest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  const bool whole = parsed.ec == std::errc() && parsed.ptr == last && rank <= kLargest;
  return whole ? std::optional(rank) : std::nullopt;
}

std::map<std::uint64_t, std::filesystem::path> metrics_files(const std::filesystem::path& folder) {
  std::map<std::uint64_t, std::filesystem::path> files;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (const auto rank = rank_of_metrics(at->path())) files[*rank] = at->path();
  }
  return files;
}

}  // namespace amaxscope::report
