#include "report/words.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "core/terminal_text.hpp"

namespace amaxscope::report {

std::string printable(const std::string& text, std::size_t longest) {
  const std::string shown = terminal_line(text.substr(0, longest));
  return text.size() > longest ? shown + "..." : shown;
}

std::string named(const std::vector<Place>& places) {
  if (places.empty()) return "the run";
  std::string text = places.front().layer.empty() ? "the run" : printable(places.front().layer, 120);
  if (!places.front().tensor.empty()) text += " " + printable(places.front().tensor, 40);
  return places.size() == 1 ? text : fmt::format("{} and {} more", text, places.size() - 1);
}

std::string named_ranks(const std::vector<std::int64_t>& ranks) {
  constexpr std::size_t kShown = 8;
  if (ranks.empty()) return "all ranks";
  const std::size_t count = std::min(ranks.size(), kShown);
  const std::string list =
      fmt::format("{}", fmt::join(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(count), ", "));
  const std::string more = ranks.size() > kShown ? fmt::format(" and {} more", ranks.size() - kShown) : "";
  return fmt::format("rank{} {}{}", ranks.size() == 1 ? "" : "s", list, more);
}

std::string yaml_section(const std::string& name, const std::vector<Place>& places,
                         const std::string& feature) {
  constexpr std::size_t kShown = 6;
  std::set<std::string> layers;
  for (const Place& place : places) layers.insert(place.layer);
  std::string selected = "    layer_types: [all]\n";
  // Names of strangers stay out of what somebody will paste.
  const bool plain = std::ranges::all_of(layers, [](const std::string& layer) {
    return !layer.empty() &&
           layer.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") ==
               std::string::npos;
  });
  if (!layers.empty() && layers.size() <= kShown && plain) {
    selected = fmt::format("    exact_layer_names: [{}]\n", fmt::join(layers, ", "));
  }
  return fmt::format("{}:\n  enabled: True\n  layers:\n{}  transformer_engine:\n{}", name, selected, feature);
}

std::vector<std::string> gemms_of(const std::string& tensor, const std::string& copy) {
  struct Use {
    const char* tensor;
    const char* rowwise;
    const char* columnwise;
  };
  static constexpr Use kUses[] = {
      {"activation", "fprop", "wgrad"}, {"weight", "fprop", "dgrad"}, {"gradient", "dgrad", "wgrad"}};
  for (const Use& use : kUses) {
    if (tensor != use.tensor) continue;
    if (copy == "rowwise") return {use.rowwise};
    if (copy == "columnwise") return {use.columnwise};
    return {use.rowwise, use.columnwise};
  }
  if (tensor == "output") return {"fprop"};
  if (tensor == "dgrad" || tensor == "wgrad") return {tensor};
  return {};
}

}  // namespace amaxscope::report
