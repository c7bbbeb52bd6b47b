#include "runtime/live/event_files.hpp"

#include <fmt/format.h>

#include "runtime/sinks/append_file.hpp"
#include "runtime/sinks/json_text.hpp"
#include "runtime/sinks/record_lines.hpp"
#include "runtime/storage/file.hpp"

namespace amaxscope {

namespace {

constexpr int kSchemaVersion = 1;

std::string json_line(const Recollection& recollection) {
  const RecentTensor& tensor = recollection.tensor;
  std::string values;
  for (const StatValue& value : tensor.values) {
    values +=
        fmt::format("{}{}:{}", values.empty() ? "" : ",", json_string(value.name), json_number(value.value));
  }
  return fmt::format(
      R"({{"iteration":{},"layer":{},"tensor":{},"phase":{},"microbatch":{},"feature":{},"recent":{{{}}}}})"
      "\n",
      tensor.iteration, json_string(tensor.layer), json_string(tensor.tensor),
      json_string(to_string(tensor.phase)), tensor.microbatch, json_string(recollection.feature), values);
}

}  // namespace

std::filesystem::path event_folder(const std::filesystem::path& log_dir, std::int64_t iteration) {
  return log_dir / "events" / fmt::format("iter_{:06}", iteration);
}

std::filesystem::path write_event_record(const std::filesystem::path& log_dir, const EventRecord& record) {
  std::string lines = fmt::format("{{\"schema_version\":{},\"run_id\":{},\"rank\":{},\"iteration\":{}}}\n",
                                  kSchemaVersion, json_string(record.run_id), record.rank, record.iteration);
  for (const Event& event : record.events) lines += json_line(record.iteration, event);
  if (record.steps != nullptr) {
    for (const RecentSteps::Step& step : record.steps->kept()) {
      for (const StatRecord& one : step.records) lines += json_line(one);
    }
  }
  for (const Recollection& recollection : record.recent) lines += json_line(recollection);
  const std::filesystem::path path =
      event_folder(log_dir, record.iteration) / fmt::format("rank_{}.jsonl", record.rank);
  make_folder(path.parent_path());
  OutputFile file(path);
  file.write(lines);
  file.commit();
  return path;
}

}  // namespace amaxscope
