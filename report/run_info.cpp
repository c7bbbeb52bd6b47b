#include "report/run_info.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "report/json_values.hpp"
#include "report/words.hpp"
#include "runtime/sinks/run_file.hpp"
#include "runtime/storage/file.hpp"
#include "runtime/storage/json_limits.hpp"

namespace amaxscope::report {

namespace {

using nlohmann::json;

constexpr std::size_t kLongestConfig = 256U << 10;
constexpr std::size_t kMostConfigChanges = 100;

std::map<std::string, std::vector<std::string>> section_layers_of(const json& entry) {
  std::map<std::string, std::vector<std::string>> layers;
  const auto sections = entry.find("section_layers");
  if (sections == entry.end() || !sections->is_object()) return layers;
  for (const auto& [section, value] : sections->items())
    layers[section] = texts_of(*sections, section.c_str());
  return layers;
}

std::vector<ConfigText> config_changes_of(const json& entry) {
  std::vector<ConfigText> changes;
  const auto found = entry.find("config_changes");
  if (found == entry.end() || !found->is_array()) return changes;
  for (const json& change : *found) {
    if (!change.is_object() || changes.size() >= kMostConfigChanges) continue;
    changes.push_back({integer_of(change, "iteration").value_or(0), text_of(change, "source"),
                       text_of(change, "text").substr(0, kLongestConfig)});
  }
  return changes;
}

RunInfo run_of(const json& entry) {
  RunInfo run;
  run.run_id = text_of(entry, "run_id");
  run.closed = text_of(entry, "state") == "closed";
  run.start = text_of(entry, "start");
  run.first_iteration = integer_of(entry, "first_iteration").value_or(0);
  run.last_iteration = integer_of(entry, "last_iteration");
  run.world_size = integer_of(entry, "world_size").value_or(1);
  run.alters_numerics = texts_of(entry, "alters_numerics");
  run.other_paths = texts_of(entry, "other_paths");
  if (const auto parallel = entry.find("parallel"); parallel != entry.end() && parallel->is_object()) {
    for (const auto& [name, value] : parallel->items()) {
      if (const auto size = integer_of(value)) run.parallel[name] = *size;
    }
  }
  if (const auto options = entry.find("options"); options != entry.end() && options->is_object()) {
    for (const auto& [name, value] : options->items()) {
      if (value.is_string()) run.options[name] = value.get<std::string>();
    }
  }
  if (const auto config = entry.find("config"); config != entry.end() && config->is_object()) {
    run.config_source = text_of(*config, "source");
    run.config_digest = text_of(*config, "digest");
    run.config_text = text_of(*config, "text").substr(0, kLongestConfig);
  }
  run.section_layers = section_layers_of(entry);
  run.config_changes = config_changes_of(entry);
  return run;
}

}  // namespace

void read_run_file(const std::filesystem::path& path, Reading& reading) {
  std::string text;
  try {
    text = read_bounded(path, RunDescription::kMostBytes);
  } catch (const Error& error) {
    std::error_code unknown;
    reading.problems.push_back(std::filesystem::exists(path, unknown)
                                   ? "run.json is not read: " + printable(error.what())
                                   : "run.json is not there, or cannot be read");
    return;
  }
  if (const std::string excess = json_excess(text); !excess.empty()) {
    reading.problems.push_back("run.json is not read: it " + excess);
    return;
  }
  const json content = json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto runs = content.is_object() ? content.find("runs") : content.end();
  if (!content.is_object() || runs == content.end() || !runs->is_array()) {
    reading.problems.emplace_back("run.json is cut off, or no description of a run");
    return;
  }
  if (integer_of(content, "schema_version") != RunDescription::kSchemaVersion) {
    reading.problems.push_back(
        fmt::format("run.json has another schema version than {}; what is read from it may be wrong",
                    RunDescription::kSchemaVersion));
  }
  for (const json& entry : *runs) {
    if (entry.is_object()) reading.runs.push_back(run_of(entry));
  }
  if (reading.runs.empty()) reading.problems.emplace_back("run.json describes no run");
}

}  // namespace amaxscope::report
