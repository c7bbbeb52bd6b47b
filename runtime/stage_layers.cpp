#include "runtime/stage_layers.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "collectives/exchange.hpp"

namespace amaxscope {

namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostNamesShown = 10;

}  // namespace

std::string to_text(const StageLayers& stage) {
  const Json json = {{"ranks", stage.ranks}, {"names", stage.names}, {"sections", stage.sections}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

StageLayers stage_layers_from(const std::string& text) {
  const Json json = Json::parse(text);
  StageLayers stage;
  json.at("ranks").get_to(stage.ranks);
  json.at("names").get_to(stage.names);
  json.at("sections").get_to(stage.sections);
  return stage;
}

std::map<std::string, std::vector<std::string>> joined_sections(std::span<const StageLayers> stages) {
  std::map<std::string, std::vector<std::string>> joined;
  for (const StageLayers& stage : stages) {
    for (const auto& [section, layers] : stage.sections) {
      std::vector<std::string>& all = joined[section];
      all.insert(all.end(), layers.begin(), layers.end());
    }
  }
  return joined;
}

std::string names_of_several_stages(std::span<const StageLayers> stages) {
  std::map<std::string, std::vector<std::string>> holders;
  for (const StageLayers& stage : stages) {
    for (const std::string& name : stage.names) holders[name].push_back(rank_list(stage.ranks));
  }
  std::erase_if(holders, [](const auto& entry) { return entry.second.size() == 1; });
  if (holders.empty()) return {};
  std::string text = "different pipeline stages registered the same names; a name belongs to one stage:";
  std::size_t shown = 0;
  for (const auto& [name, ranks] : holders) {
    if (shown++ == kMostNamesShown) break;
    text += fmt::format("\n  {} on {}", name, fmt::join(ranks, " and on "));
  }
  if (holders.size() > kMostNamesShown)
    text += fmt::format("\n  and {} more", holders.size() - kMostNamesShown);
  text +=
      "\n  Name layers by numbers that are global over the stages: the first layer of a stage comes after "
      "the "
      "last of the stage before it.";
  return text;
}

}  // namespace amaxscope
