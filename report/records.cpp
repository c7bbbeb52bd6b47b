#include "report/records.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.hpp"
#include "report/json_values.hpp"
#include "report/run_info.hpp"
#include "runtime/sinks/run_file.hpp"

namespace amaxscope::report {

namespace {

using nlohmann::json;

constexpr std::size_t kLongestLine = 4U << 20;
constexpr std::size_t kLongestName = 1024;  ///< of a layer, tensor, check; such a line is left out
constexpr std::size_t kLongestText = 2000;  ///< of a sentence; cut off
constexpr std::size_t kMostDetails = 32;

/// Calls take(line, whole) for every line; whole is false for one that is too long or has no end.
void for_each_line(std::istream& file, const std::function<void(const std::string&, bool)>& take) {
  std::array<char, 1U << 16> buffer;
  std::string line;
  bool too_long = false;
  while (file.read(buffer.data(), buffer.size()) || file.gcount() > 0) {
    const char* at = buffer.data();
    const char* const end = at + file.gcount();
    while (at != end) {
      const char* const newline = std::find(at, end, '\n');
      if (line.size() + static_cast<std::size_t>(newline - at) > kLongestLine) {
        too_long = true;
        line.clear();
      }
      if (!too_long) line.append(at, newline);
      at = newline;
      if (newline == end) break;
      take(line, !too_long);
      line.clear();
      too_long = false;
      ++at;
    }
  }
  if (!line.empty() || too_long) take(line, false);
}

std::map<std::string, double> numbers_of(const json& object) {
  std::map<std::string, double> numbers;
  for (const auto& [name, value] : object.items()) {
    if (const auto number = number_of(value)) numbers[name] = *number;
  }
  return numbers;
}

class MetricsFile {
 public:
  MetricsFile(std::string name, std::uint64_t rank, Reading& reading, RecordVisitor& visitor)
      : name_(std::move(name)),
        rank_(static_cast<std::int64_t>(rank)),
        reading_(reading),
        visitor_(visitor) {}

  void read(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file.is_open()) {
      reading_.problems.push_back(fmt::format("{} cannot be read", name_));
      return;
    }
    ++reading_.files;
    for_each_line(file, [&](const std::string& text, bool whole) {
      ++line_;
      ++reading_.lines;
      if (whole && understood(text)) return;
      if (reading_.unreadable++ == 0) reading_.first_unreadable = fmt::format("{}:{}", name_, line_);
    });
  }

 private:
  bool understood(const std::string& text) {
    const json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!object.is_object()) return false;
    if (object.contains("schema_version")) return opening(object);
    const auto iteration = integer_of(object, "iteration");
    if (!iteration) return false;
    if (object.contains("end_of_step")) return marker(*iteration);
    if (const auto found = object.find("finding"); found != object.end()) return finding(*iteration, *found);
    if (const auto found = object.find("scalars"); found != object.end()) {
      if (!found->is_object()) return false;
      visitor_.scalars(*iteration, numbers_of(*found));
      return true;
    }
    if (object.contains("event")) return object["event"].is_object();
    return record(*iteration, object);
  }

  bool opening(const json& object) {
    if (integer_of(object, "schema_version") == RunDescription::kSchemaVersion) return true;
    if (!std::exchange(other_version_, true)) {
      reading_.problems.push_back(
          fmt::format("{} has another schema version than {}; what is read from it may be wrong", name_,
                      RunDescription::kSchemaVersion));
    }
    return true;
  }

  bool marker(std::int64_t iteration) {
    ++reading_.completed_steps;
    reading_.first_step = std::min(reading_.first_step.value_or(iteration), iteration);
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
    line.rank = rank_;
    line.group = integers_of(object, "group");
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

  std::string name_;
  std::int64_t rank_;
  Reading& reading_;
  RecordVisitor& visitor_;
  std::uint64_t line_ = 0;
  bool other_version_ = false;
};

/// rank_R.jsonl by R.
std::map<std::uint64_t, std::filesystem::path> metrics_files(const std::filesystem::path& folder) {
  constexpr std::string_view kPrefix = "rank_";
  constexpr std::string_view kSuffix = ".jsonl";
  std::map<std::uint64_t, std::filesystem::path> files;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) continue;
    const char* const last = name.data() + name.size() - kSuffix.size();
    std::uint64_t rank = 0;
    const auto parsed = std::from_chars(name.data() + kPrefix.size(), last, rank);
    if (parsed.ec == std::errc() && parsed.ptr == last) files[rank] = at->path();
  }
  return files;
}

}  // namespace

bool RecordLine::has_flag(const std::string& stat, const std::string& flag) const {
  const auto found = flags.find(stat);
  return found != flags.end() && std::ranges::find(found->second, flag) != found->second.end();
}

Reading read_records(const std::filesystem::path& log_dir, RecordVisitor& visitor) {
  std::error_code error;
  AMAXSCOPE_CHECK(std::filesystem::is_directory(log_dir, error), ErrorCode::kInput,
                  "{}: no directory; the log directory of a run is wanted (what --log-dir named)",
                  log_dir.string());
  Reading reading;
  read_run_file(log_dir / "run.json", reading);
  for (const auto& [rank, path] : metrics_files(log_dir / "metrics")) {
    MetricsFile("metrics/" + path.filename().string(), rank, reading, visitor).read(path);
  }
  if (reading.files == 0) reading.problems.emplace_back("metrics/ has no file rank_R.jsonl");
  return reading;
}

}  // namespace amaxscope::report
