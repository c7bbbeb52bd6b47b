#include "report/page/page_json.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "report/diff_text.hpp"
#include "report/verdict_text.hpp"

namespace amaxscope::report {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostFindings = 1'000;  ///< in the page; Evidence counts all
constexpr int kMostDepartures = 100;          ///< in each list; `diff --json` has more
constexpr int kPageVersion = 1;

/// Lists of iterations that many series share, each once.
class Axes {
 public:
  std::size_t number_of(const BucketSeries& series) {
    std::vector<std::int64_t> indices;
    indices.reserve(series.buckets().size());
    for (const Bucket& bucket : series.buckets()) indices.push_back(bucket.index);
    return numbers_.emplace(std::move(indices), numbers_.size()).first->second;
  }
  [[nodiscard]] Json json() const {
    Json axes(std::vector<Json>(numbers_.size()));
    for (const auto& [indices, number] : numbers_) axes[number] = indices;
    return axes;
  }

 private:
  std::map<std::vector<std::int64_t>, std::size_t> numbers_;
};

/// Appends axis, smallest and largest values; 0 instead of the latter where they are the same.
void append_values(Json& to, const BucketSeries& series, Axes& axes) {
  std::vector<float> lows;
  std::vector<float> highs;
  bool alike = true;
  for (const Bucket& bucket : series.buckets()) {
    lows.push_back(bucket.low);
    highs.push_back(bucket.high);
    alike = alike && std::bit_cast<std::uint32_t>(bucket.low) == std::bit_cast<std::uint32_t>(bucket.high);
  }
  to.push_back(axes.number_of(series));
  to.push_back(base64_of(lows));
  if (alike) {
    to.push_back(0);
  } else {
    to.push_back(base64_of(highs));
  }
}

using Rows = std::vector<std::pair<std::uint32_t, const PageData::Values*>>;  ///< place of the layer, values

Json plane_json(std::uint32_t tensor, std::uint32_t stat, const Rows& rows, Axes& axes) {
  std::vector<BucketSeries> merged;
  merged.reserve(rows.size());
  int shift = 0;
  for (const auto& [layer, values] : rows) {
    merged.push_back(values->all());
    shift = std::max(shift, merged.back().shift());
  }
  Json lines = Json::array();
  Json ranks = Json::array();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    merged[i].widen(shift);
    Json line = {rows[i].first};
    append_values(line, merged[i], axes);
    lines.push_back(std::move(line));
    const PageData::Values& values = *rows[i].second;
    if (!values.differs()) continue;
    Json groups = Json::array();
    const auto add = [&](std::int64_t rank, const BucketSeries& series) {
      Json group = {rank, series.shift()};
      append_values(group, series, axes);
      groups.push_back(std::move(group));
    };
    add(values.rank, values.own);
    for (const auto& [rank, series] : values.others) add(rank, series);
    ranks.push_back(Json::array({rows[i].first, std::move(groups)}));
  }
  Json plane = {{"tensor", tensor}, {"stat", stat}, {"shift", shift}, {"rows", std::move(lines)}};
  if (!ranks.empty()) plane["ranks"] = std::move(ranks);
  return plane;
}

Json planes_json(const PageData& data, const std::vector<std::uint32_t>& place_of, Axes& axes) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, Rows> planes;
  for (const auto& [key, values] : data.series())
    planes[{key.tensor, key.stat}].emplace_back(place_of[key.layer], &values);
  Json json = Json::array();
  for (auto& [key, rows] : planes) {
    std::ranges::sort(rows, {}, &Rows::value_type::first);
    json.push_back(plane_json(key.first, key.second, rows, axes));
  }
  return json;
}

Json formats_json(const PageData& data, const std::vector<std::uint32_t>& place_of) {
  Json json = Json::array();
  for (const auto& [place, formats] : data.formats()) {
    Json changes = Json::array();
    for (const OperandFormat& each : formats)
      changes.push_back(Json::array({each.iteration, each.recipe, each.format}));
    json.push_back(Json::array({place_of[place.first], place.second, std::move(changes)}));
  }
  return json;
}

Json findings_json(const Evidence& evidence) {
  std::vector<const Found*> all;
  for (const auto& [key, found] : evidence.findings()) all.push_back(&found);
  std::ranges::sort(all, {},
                    [](const Found* found) { return std::pair(found->first.iteration, found->order); });
  Json json = Json::array();
  for (const Found* found : all) {
    if (json.size() >= kMostFindings) break;
    json.push_back({{"check", found->first.check},
                    {"layer", found->first.layer},
                    {"tensor", found->first.tensor},
                    {"phase", found->first.phase},
                    {"iteration", found->first.iteration},
                    {"last", found->last_iteration},
                    {"ranks", found->ranks},
                    {"what", found->first.what}});
  }
  return json;
}

Json run_json(const RunInfo& run) {
  Json changes = Json::array();
  for (const ConfigText& change : run.config_changes) {
    changes.push_back({{"iteration", change.iteration}, {"source", change.source}, {"text", change.text}});
  }
  Json json = {{"run_id", run.run_id},
               {"closed", run.closed},
               {"start", run.start},
               {"first_iteration", run.first_iteration},
               {"last_iteration", nullptr},
               {"world_size", run.world_size},
               {"parallel", run.parallel},
               {"options", run.options},
               {"config", {{"source", run.config_source}, {"text", run.config_text}}},
               {"config_changes", std::move(changes)},
               {"section_layers", run.section_layers},
               {"alters_numerics", run.alters_numerics}};
  if (run.last_iteration) json["last_iteration"] = *run.last_iteration;
  return json;
}

Json scalars_json(const PageData& data, Axes& axes) {
  Json json = Json::array();
  for (const auto& [name, series] : data.scalars()) {
    Json scalar = {name, series.shift()};
    append_values(scalar, series, axes);
    json.push_back(std::move(scalar));
  }
  return json;
}

/// The layers in the order of the model.
struct Layers {
  explicit Layers(const PageData& data) {
    const std::vector<std::uint32_t> order = model_order(data.layers());
    place_of.resize(order.size());
    for (std::size_t place = 0; place < order.size(); ++place) {
      place_of[order[place]] = static_cast<std::uint32_t>(place);
      names.push_back(data.layers()[order[place]]);
    }
  }
  std::vector<std::uint32_t> place_of;  ///< by the number that the data has for a layer
  Json names = Json::array();
};

/// Names and series.
void add_numbers(Json& to, const PageData& data, const Layers& layers) {
  Axes axes;
  to["layers"] = layers.names;
  to["tensors"] = data.tensors();
  to["stats"] = data.stats();
  to["scalars"] = scalars_json(data, axes);
  to["planes"] = planes_json(data, layers.place_of, axes);
  to["axes"] = axes.json();
}

/// The other run: the comparison as `diff --json` has it, in the words of the page, and its numbers.
Json against_json(const Against& against) {
  Json diff = Json::parse(as_json(against.diff));
  diff["sentence"] = as_sentence(against.diff, "here", "there");
  diff.erase("noise");
  for (const char* list : {"first", "follows"}) {
    Json& departures = diff[list];
    if (departures.size() > kMostDepartures)
      departures.erase(departures.begin() + kMostDepartures, departures.end());
  }
  Json json = {{"name", against.name}, {"diff", std::move(diff)}};
  add_numbers(json, against.data, Layers(against.data));
  return json;
}

/// "<" could end the script or begin a comment. None of the three stands outside of a string in JSON.
std::string for_script(const std::string& json) {
  std::string safe;
  safe.reserve(json.size());
  for (const char c : json) {
    if (c == '<') {
      safe += "\\u003c";
    } else if (c == '>') {
      safe += "\\u003e";
    } else if (c == '&') {
      safe += "\\u0026";
    } else {
      safe += c;
    }
  }
  return safe;
}

}  // namespace

std::string base64_of(std::span<const float> values) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  bytes.reserve(values.size() * sizeof(float));
  for (const float value : values) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    for (int at = 0; at < 32; at += 8) bytes += static_cast<char>(static_cast<unsigned char>(bits >> at));
  }
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t three = 0;
    for (std::size_t k = 0; k < 3; ++k)
      three = three << 8U | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    for (std::size_t k = 0; k < 4; ++k)
      text += i + k <= bytes.size() ? kDigits[three >> (18U - 6U * k) & 63U] : '=';
  }
  return text;
}

std::string escaped_html(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '&':
        safe += "&amp;";
        break;
      case '"':
        safe += "&quot;";
        break;
      case '\'':
        safe += "&#39;";
        break;
      default:
        safe += c;
    }
  }
  return safe;
}

std::string page_json(const Verdict& verdict, const Evidence& evidence, const PageData& data,
                      const Against* against) {
  Json runs = Json::array();
  for (const RunInfo& run : verdict.reading.runs) runs.push_back(run_json(run));
  const Layers layers(data);
  Json json = {{"version", kPageVersion},
               {"verdict", Json::parse(as_json(verdict))},
               {"runs", std::move(runs)},
               {"findings", findings_json(evidence)},
               {"findings_in_all", evidence.findings().size()},
               {"formats", formats_json(data, layers.place_of)},
               {"left_out", data.left_out() + evidence.left_out()},
               {"against", against != nullptr ? against_json(*against) : Json()}};
  add_numbers(json, data, layers);
  return for_script(json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace amaxscope::report
