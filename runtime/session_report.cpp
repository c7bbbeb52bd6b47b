// What the runtime is doing, written down when somebody asks.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "runtime/live/event_files.hpp"
#include "runtime/session_impl.hpp"
#include "runtime/sinks/append_file.hpp"
#include "runtime/storage/file.hpp"

namespace amaxscope {

namespace {

using Json = nlohmann::ordered_json;

Json iteration_or_null(std::int64_t iteration) {
  return iteration == kNever ? Json(nullptr) : Json(iteration);
}

Json names_of(const std::vector<Feature*>& features) {
  Json names = Json::array();
  for (const Feature* feature : features) {
    names.push_back(fmt::format("{}/{}", feature->config().section, feature->config().name));
  }
  return names;
}

Json traffic(const TrafficCounters& counters) {
  Json json;
  for (const Traffic kind : {Traffic::kTrainer, Traffic::kRecipe, Traffic::kDebug}) {
    json[std::string(to_string(kind))] = {{"calls", counters.calls(kind)}, {"bytes", counters.bytes(kind)}};
  }
  return json;
}

}  // namespace

void DebugSession::Impl::write_state_report() {
  if (options_.log_dir.empty()) {
    log.warn("iteration {}: the state of the runtime was asked for, but there is no log directory",
             iteration);
    return;
  }
  Json state = {{"schema_version", 1},
                {"run_id", run_.run_id},
                {"rank", own_rank()},
                {"iteration", iteration},
                {"detached", detached},
                {"failure_policy", failure_policy() == FailurePolicy::kDetach ? "detach" : "abort"},
                {"config",
                 {{"source", active_->config.source},
                  {"digest", text_digest(active_->config.text)},
                  {"changes", run_.config_changes.size()}}},
                {"poll_every", poll_every_ ? Json(*poll_every_) : Json(nullptr)},
                {"next_due", iteration_or_null(active_->next_due)},
                {"steps_kept", recent_steps_.kept().size()},
                {"events_written", event_records_}};
  if (groups_.world != nullptr) state["collectives"] = traffic(groups_.world->counters());
  Json& sections = state["sections"] = Json::object();
  for (const auto& [section, layers] : active_->section_layers()) sections[section] = layers;
  Json& layers = state["layers"] = Json::array();
  for (const auto& [name, layer] : layers_) {
    layers.push_back({{"name", name},
                      {"features", names_of(layer->parts.features)},
                      {"next", iteration_or_null(layer->gate.next)}});
  }
  Json& observed = state["observed"] = Json::array();
  for (const auto& [key, target] : free_tensors_) {
    if (target->features.empty()) continue;
    observed.push_back({{"name", target->tensor.layer},
                        {"tensor", target->tensor.name},
                        {"features", names_of(target->features)},
                        {"next", iteration_or_null(target->next)}});
  }
  const std::filesystem::path file =
      event_folder(options_.log_dir, iteration) / fmt::format("rank_{}_state.json", own_rank());
  try {
    make_folder(file.parent_path());
    OutputFile out(file);
    out.write(state.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
    out.commit();
  } catch (const Error& error) {
    log.error("iteration {}: the state of the runtime is not written: {}", iteration, error.what());
    return;
  }
  if (is_world_leader()) {
    log.warn("iteration {}: the state of the runtime is in {}, of each rank", iteration,
             file.parent_path().string());
  }
}

}  // namespace amaxscope
