#include <nlohmann/json.hpp>

#include "report/json_values.hpp"
#include "report/verdict_text.hpp"

namespace amaxscope::report {

namespace {

using Json = nlohmann::ordered_json;

Json to_json(const Cause& cause) {
  Json places = Json::array();
  for (const Place& place : cause.places)
    places.push_back({{"layer", place.layer}, {"tensor", place.tensor}});
  Json series = Json::array();
  for (const Point& point : cause.series) {
    series.push_back({{"iteration", point.iteration}, {"value", json_of(point.value)}});
  }
  return {{"kind", cause.kind},         {"confidence", to_string(cause.confidence)},
          {"sentence", cause.sentence}, {"iteration", cause.iteration},
          {"sampled", cause.sampled},   {"places", places},
          {"ranks", cause.ranks},       {"phase", cause.phase},
          {"gemms", cause.gemms},       {"channel", cause.channel ? Json(*cause.channel) : Json()},
          {"why", cause.why},           {"series", {{"name", cause.series_name}, {"points", series}}},
          {"actions", cause.actions},   {"yaml", cause.yaml},
          {"expect", cause.expect}};
}

Json to_json(const Reading& reading) {
  Json json = {{"files", reading.files},
               {"lines", reading.lines},
               {"unreadable_lines", reading.unreadable},
               {"first_unreadable", reading.first_unreadable},
               {"problems", reading.problems},
               {"first_iteration", nullptr},
               {"last_iteration", nullptr}};
  if (reading.first_step) json["first_iteration"] = *reading.first_step;
  if (reading.last_step) json["last_iteration"] = *reading.last_step;
  if (!reading.runs.empty()) {
    const RunInfo& run = reading.runs.back();
    json["run_id"] = run.run_id;
    json["closed"] = run.closed;
    json["world_size"] = run.world_size;
    json["parallel"] = run.parallel;
    json["alters_numerics"] = run.alters_numerics;
  }
  return json;
}

}  // namespace

std::string as_json(const Verdict& verdict, int indent) {
  Json also = Json::array();
  for (const Cause& cause : verdict.also) also.push_back(to_json(cause));
  Json moved = Json::array();
  for (const Moved& each : verdict.moved)
    moved.push_back({{"iteration", each.iteration}, {"what", each.what}});
  const Json json = {{"version", Verdict::kVersion},
                     {"outcome", to_string(verdict.outcome)},
                     {"sentence", verdict.sentence},
                     {"cause", verdict.cause ? to_json(*verdict.cause) : Json()},
                     {"also", also},
                     {"moved", moved},
                     {"clean", verdict.clean},
                     {"not_measured", verdict.not_measured},
                     {"other_paths", verdict.other_paths},
                     {"last_good_state", verdict.last_good_state},
                     {"run", to_json(verdict.reading)},
                     {"records", verdict.records}};
  return json.dump(indent, ' ', true, Json::error_handler_t::replace);
}

}  // namespace amaxscope::report
