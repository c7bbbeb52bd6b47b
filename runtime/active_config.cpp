#include "runtime/active_config.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"

namespace amaxscope {

namespace {

bool dumps(const Feature& feature) { return feature.trigger() == EventAction::kDump; }

}  // namespace

ActiveConfig::ActiveConfig(Config checked, const FeatureRegistry& registry, GuardedGroups& groups, Log& log,
                           std::int64_t event_dump_bytes)
    : config(std::move(checked)), stats(groups, log) {
  bool any_dumps = false;
  for (const ConfigSection& section : config.sections) {
    if (!section.enabled) continue;
    Section& active = sections.emplace_back();
    active.config = &section;
    for (const FeatureConfig& feature : section.features) {
      const FeatureEntry* entry = registry.find(feature.name, feature.base_namespace);
      AMAXSCOPE_CHECK(entry != nullptr, ErrorCode::kInternal, "feature {} passed the check but is unknown",
                      feature.name);
      any_dumps = dumps(*active.features.emplace_back(entry->make(feature))) || any_dumps;
    }
    observing = observing || section.observe.has_value();
  }
  if (any_dumps) event_dump = std::make_unique<EventDump>(event_dump_bytes);
}

bool ActiveConfig::any_feature() const {
  return std::ranges::any_of(sections, [](const Section& section) { return !section.features.empty(); });
}

bool ActiveConfig::triggers() const {
  bool any = false;
  for_each_feature([&](const Feature& feature) { any = any || feature.trigger() != EventAction::kNone; });
  return any;
}

std::vector<std::string> ActiveConfig::altering() const {
  std::vector<std::string> names;
  for_each_feature([&](const Feature& feature) {
    if (!feature.alters_numerics()) return;
    names.push_back(fmt::format("{} in section {}", feature.config().name, feature.config().section));
  });
  return names;
}

std::map<std::string, std::vector<std::string>> ActiveConfig::section_layers() const {
  std::map<std::string, std::vector<std::string>> result;
  for (const Section& section : sections) result[section.config->name] = section.layers;
  return result;
}

std::vector<Feature*> ActiveConfig::match(const LayerDescription& layer) {
  std::vector<Feature*> features;
  for (Section& section : sections) {
    if (section.config->layers == nullptr || !section.config->layers->matches(layer.name, layer.number)) {
      continue;
    }
    section.layers.push_back(layer.name);
    for (const auto& feature : section.features) {
      if (!feature->config().base_namespace) features.push_back(feature.get());
    }
  }
  add_event_dump(features);
  return features;
}

std::vector<Feature*> ActiveConfig::match(const InspectedTensor& tensor, bool base) {
  std::vector<Feature*> features;
  for (Section& section : sections) {
    const bool chosen = base ? section.config->layers != nullptr &&
                                   section.config->layers->matches(tensor.layer, std::nullopt)
                             : section.config->observe && section.config->observe->found_in(tensor.layer);
    if (!chosen) continue;
    bool used = false;
    for (const auto& feature : section.features) {
      if (feature->config().base_namespace != base) continue;
      features.push_back(feature.get());
      used = true;
    }
    if (used && std::ranges::find(section.layers, tensor.layer) == section.layers.end()) {
      section.layers.push_back(tensor.layer);
    }
  }
  add_event_dump(features);
  return features;
}

void ActiveConfig::add_event_dump(std::vector<Feature*>& features) const {
  if (event_dump == nullptr) return;
  const bool wanted = std::ranges::any_of(features, [](const Feature* feature) { return dumps(*feature); });
  if (wanted) features.push_back(event_dump.get());
}

void ActiveConfig::register_tensor(Feature& feature, const InspectedTensor& tensor) {
  stats.set_owner(&feature);
  feature.register_tensor(tensor, stats);
}

void ActiveConfig::take_over(const ActiveConfig& from, Log& log) {
  const auto find = [&](const FeatureConfig& wanted) -> const Feature* {
    const Feature* found = nullptr;
    from.for_each_feature([&](const Feature& feature) {
      const FeatureConfig& other = feature.config();
      if (other.section == wanted.section && other.name == wanted.name &&
          other.base_namespace == wanted.base_namespace) {
        found = &feature;
      }
    });
    return found;
  };
  for_each_feature([&](Feature& feature) {
    const Feature* before = find(feature.config());
    if (before == nullptr) return;
    FeatureState state;
    before->save_state(state);
    try {
      feature.load_state(state);
    } catch (const Error& error) {
      log.warn("{} starts anew: {}", feature.label(), error.what());
    }
  });
}

}  // namespace amaxscope
