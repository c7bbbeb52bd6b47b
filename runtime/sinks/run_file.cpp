#include "runtime/sinks/run_file.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <system_error>

#include "core/error.hpp"
#include "runtime/sinks/append_file.hpp"
#include "runtime/storage/file.hpp"
#include "runtime/storage/json_limits.hpp"

namespace amaxscope {

namespace {

using Json = nlohmann::ordered_json;

std::filesystem::path path_in(const std::filesystem::path& log_dir) { return log_dir / "run.json"; }

/// "2026-01-31T05:11:57.884Z"
std::string utc(std::chrono::system_clock::time_point time) {
  const auto whole = std::chrono::floor<std::chrono::seconds>(time);
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(time - whole);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(std::chrono::system_clock::to_time_t(whole)),
                     ms.count());
}

Json to_json(const RunDescription& run) {
  Json out = {
      {"run_id", run.run_id},
      {"state", "unclosed"},
      {"start", utc(run.start)},
      {"first_iteration", run.first_iteration},
      {"world_size", run.world_size},
      {"parallel", run.parallel},
      {"options", run.options},
      {"config", {{"source", run.config_source}, {"digest", run.config_digest}, {"text", run.config_text}}},
      {"section_layers", run.section_layers},
      {"alters_numerics", run.alters_numerics},
      {"other_paths", run.other_paths}};
  if (run.config_changes.empty()) return out;
  Json& changes = out["config_changes"] = Json::array();
  for (const ConfigChange& change : run.config_changes) {
    changes.push_back({{"iteration", change.iteration},
                       {"source", change.source},
                       {"digest", change.digest},
                       {"text", change.text},
                       {"section_layers", change.section_layers},
                       {"alters_numerics", change.alters_numerics}});
  }
  return out;
}

/// The file's content, or that of a file without runs when there is none.
Json read(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error) && !error) {
    return {{"schema_version", RunDescription::kSchemaVersion}, {"runs", Json::array()}};
  }
  const std::string text = read_bounded(path, RunDescription::kMostBytes);
  Json content;
  if (json_excess(text).empty()) content = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  AMAXSCOPE_CHECK(
      content.is_object() && content.contains("runs") && content["runs"].is_array(), ErrorCode::kIo,
      "{}: is not the description of a run; move it away or choose another log dir", path.string());
  const Json version = content.value("schema_version", Json());
  AMAXSCOPE_CHECK(version == RunDescription::kSchemaVersion, ErrorCode::kIo,
                  "{}: has schema version {}, this program writes {}; choose another log dir", path.string(),
                  version.dump().substr(0, 60), RunDescription::kSchemaVersion);
  return content;
}

/// Empty for what is no run: the file may be anybody's.
std::string run_id_of(const Json& run) {
  const auto id = run.find("run_id");
  return id != run.end() && id->is_string() ? id->get<std::string>() : std::string();
}

/// Whoever reads run.json sees the old or the new content, never a part.
void replace(const std::filesystem::path& path, const Json& content) {
  make_folder(path.parent_path());
  OutputFile file(path);
  file.write(content.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  file.commit();
}

}  // namespace

void write_run_file(const std::filesystem::path& log_dir, const RunDescription& run) {
  const std::filesystem::path path = path_in(log_dir);
  Json content = read(path);
  Json& runs = content["runs"];
  const auto known = std::ranges::find(runs, run.run_id, run_id_of);
  if (known == runs.end()) {
    runs.push_back(to_json(run));
  } else {
    *known = to_json(run);
  }
  replace(path, content);
}

void mark_run_closed(const std::filesystem::path& log_dir, const std::string& run_id,
                     std::int64_t last_iteration) {
  const std::filesystem::path path = path_in(log_dir);
  Json content = read(path);
  Json& runs = content["runs"];
  for (auto run = runs.rbegin(); run != runs.rend(); ++run) {
    if (run_id_of(*run) != run_id) continue;
    (*run)["state"] = "closed";
    (*run)["last_iteration"] = last_iteration;
    replace(path, content);
    return;
  }
  throw Error(ErrorCode::kIo, fmt::format("{}: has no run \"{}\" to close", path.string(), run_id));
}

}  // namespace amaxscope
