#include "runtime/config/config.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "runtime/config/feature_parser.hpp"
#include "runtime/config/key_check.hpp"
#include "runtime/config/structure_keys.hpp"
#include "runtime/config/yaml_parser.hpp"

namespace amaxscope {

namespace {

// A config file names at most a few hundred (GEMM, tensor) pairs; lists that multiply to more are an
// accident.
constexpr std::size_t kMaxResolvedValues = 1'000'000;

constexpr std::string_view kFeatureNamespace = "transformer_engine";

class ConfigLoader {
 public:
  ConfigLoader(const FeatureRegistry& registry, Diagnostics& diagnostics)
      : registry_(registry), diagnostics_(diagnostics) {}

  std::vector<ConfigSection> load(const ConfigValue& root);

 private:
  ConfigSection section(const ConfigValue::Member& member);
  bool section_enabled(const ConfigValue::Member& member);
  void observe(const ConfigValue& value, ConfigSection& section);
  void features(const ConfigValue& mapping, ConfigSection& section, const FeaturePlace& place);
  void feature(const ConfigValue::Member& member, bool base_namespace, ConfigSection& section,
               const FeaturePlace& place);
  void unknown(const ConfigValue::Member& member, bool base_namespace);
  [[nodiscard]] std::vector<std::string> feature_words(bool base_namespace) const;

  const FeatureRegistry& registry_;
  Diagnostics& diagnostics_;
  std::size_t values_left_ = kMaxResolvedValues;
};

std::vector<ConfigSection> ConfigLoader::load(const ConfigValue& root) {
  std::vector<ConfigSection> sections;
  if (root.is_null()) {
    diagnostics_.warn({}, "the config is empty: there is nothing to do");
    return sections;
  }
  const ConfigValue::Mapping* mapping = root.as_mapping();
  if (mapping == nullptr) {
    diagnostics_.error(root.position(),
                       fmt::format("a config is a mapping of sections, found {}", root.described()));
    return sections;
  }
  for (const ConfigValue::Member& member : *mapping) sections.push_back(section(member));
  const bool any =
      std::any_of(sections.begin(), sections.end(), [](const ConfigSection& one) { return one.enabled; });
  if (!any) diagnostics_.warn({}, "no section of the config is enabled: there is nothing to do");
  return sections;
}

bool ConfigLoader::section_enabled(const ConfigValue::Member& member) {
  bool enabled = true;
  if (const ConfigValue* value = member.value.find("enabled")) {
    check_bool("enabled", *value, diagnostics_, enabled);
  } else {
    diagnostics_.error(member.position,
                       fmt::format("section {} has no enabled; write enabled: True or enabled: False",
                                   in_quotes(member.key)));
  }
  return enabled;
}

ConfigSection ConfigLoader::section(const ConfigValue::Member& member) {
  ConfigSection result;
  result.name = member.key;
  result.position = member.position;
  const ConfigValue::Mapping* mapping = member.value.as_mapping();
  if (mapping == nullptr) {
    diagnostics_.error(
        member.value.position(),
        fmt::format("section {} must be a mapping, found {}; it needs enabled, layers and the features",
                    in_quotes(member.key), member.value.described()));
    return result;
  }
  result.enabled = section_enabled(member);
  const FeaturePlace place{.section = member.key,
                           .enabled = result.enabled,
                           .has_layers = member.value.find("layers") != nullptr,
                           .has_observe = member.value.find("observe") != nullptr,
                           .values_left = values_left_};
  if (!place.has_layers && !place.has_observe) {
    const std::string message =
        fmt::format("section {} has no layers; say which layers it is about", in_quotes(member.key));
    result.enabled ? diagnostics_.error(member.position, message)
                   : diagnostics_.warn(member.position, message);
  }
  bool any_feature = false;
  for (const ConfigValue::Member& entry : *mapping) {
    if (entry.key == "enabled") continue;
    if (entry.key == "layers") {
      result.layers = LayerSelector::parse(entry.value, diagnostics_);
    } else if (entry.key == "observe") {
      observe(entry.value, result);
    } else if (entry.key == kFeatureNamespace) {
      features(entry.value, result, place);
      any_feature = any_feature || !entry.value.is_null();
    } else {
      feature(entry, /*base_namespace=*/true, result, place);
      any_feature = true;
    }
  }
  if (!any_feature) {
    diagnostics_.warn(member.position,
                      fmt::format("section {} has no feature: it does nothing", in_quotes(member.key)));
  }
  return result;
}

void ConfigLoader::observe(const ConfigValue& value, ConfigSection& section) {
  const std::string* text = value.as_string();
  if (text == nullptr) {
    diagnostics_.error(value.position(),
                       fmt::format("observe must be a pattern in a string, found {}", value.described()));
    return;
  }
  try {
    section.observe.emplace(*text);
  } catch (const Error& error) {
    diagnostics_.error(value.position(), fmt::format("observe: {}", error.what()));
  }
}

void ConfigLoader::features(const ConfigValue& mapping, ConfigSection& section, const FeaturePlace& place) {
  if (mapping.is_null()) return;  // all features commented out: warned of as a section without features
  const ConfigValue::Mapping* members = mapping.as_mapping();
  if (members == nullptr) {
    diagnostics_.error(mapping.position(), fmt::format("{} must be a mapping of features, found {}",
                                                       kFeatureNamespace, mapping.described()));
    return;
  }
  for (const ConfigValue::Member& member : *members)
    feature(member, /*base_namespace=*/false, section, place);
}

void ConfigLoader::feature(const ConfigValue::Member& member, bool base_namespace, ConfigSection& section,
                           const FeaturePlace& place) {
  const FeatureEntry* entry = registry_.find(member.key, base_namespace);
  if (entry == nullptr) return unknown(member, base_namespace);
  if (auto config = parse_feature(*entry, member, place, diagnostics_))
    section.features.push_back(std::move(*config));
}

std::vector<std::string> ConfigLoader::feature_words(bool base_namespace) const {
  std::vector<std::string> words = registry_.names(base_namespace);
  for (const FeatureEntry& entry : registry_.entries()) {
    if (entry.base_namespace != base_namespace) continue;
    words.insert(words.end(), entry.schema.deprecated_aliases.begin(), entry.schema.deprecated_aliases.end());
  }
  return words;
}

void ConfigLoader::unknown(const ConfigValue::Member& member, bool base_namespace) {
  const std::string word = in_quotes(member.key);
  if (!base_namespace) {
    const bool in_base = registry_.find(member.key, true) != nullptr;
    diagnostics_.error(
        member.position,
        in_base
            ? fmt::format("feature {} stands in the section itself, not under {}", word, kFeatureNamespace)
            : fmt::format("unknown feature {}{}", word, suggestion(member.key, feature_words(false))));
    return;
  }
  if (registry_.find(member.key, false) != nullptr) {
    diagnostics_.error(member.position, fmt::format("feature {} stands under {}:", word, kFeatureNamespace));
    return;
  }
  for (const StructureKey& key : layer_keys()) {
    if (member.key == key.name) {
      diagnostics_.error(member.position, fmt::format("{} stands under layers:", word));
      return;
    }
  }
  std::vector<std::string> words = names_of(section_keys());
  for (const std::string& feature : feature_words(true)) words.push_back(feature);
  diagnostics_.error(member.position,
                     fmt::format("unknown key {} in a section{}", word, suggestion(member.key, words)));
}

}  // namespace

Config load_config(std::string_view text, std::string source, const FeatureRegistry& registry) {
  Diagnostics diagnostics(source);
  Config config;
  if (const std::optional<ConfigValue> root = read_yaml(text, diagnostics)) {
    config.sections = ConfigLoader(registry, diagnostics).load(*root);
  }
  diagnostics.throw_if_errors();
  config.source = std::move(source);
  config.text = text;
  for (const Diagnostics::Entry& entry : diagnostics.entries())
    config.warnings.push_back(diagnostics.format(entry));
  return config;
}

}  // namespace amaxscope
