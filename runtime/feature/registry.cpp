#include "runtime/feature/registry.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace amaxscope {

namespace {

std::string_view namespace_name(bool base) { return base ? "base" : "transformer_engine"; }

}  // namespace

void FeatureRegistry::add(FeatureEntry entry) {
  AMAXSCOPE_CHECK(!entry.schema.name.empty(), ErrorCode::kUsage, "feature registry: a feature needs a name");
  AMAXSCOPE_CHECK(static_cast<bool>(entry.make), ErrorCode::kUsage, "feature registry: {} has no factory",
                  entry.schema.name);
  for (const StatSchema& stat : entry.schema.statistics) {
    for (const KeySchema& parameter : stat.parameters) {
      AMAXSCOPE_CHECK(
          parameter.type == KeyType::kInteger, ErrorCode::kUsage,
          "feature registry: parameter {} of statistic {} in {} is not an integer; only integers are "
          "supported there",
          parameter.name, stat.name, entry.schema.name);
    }
  }
  std::vector<std::string> words = entry.schema.deprecated_aliases;
  words.push_back(entry.schema.name);
  for (const std::string& word : words) {
    const FeatureEntry* other = find(word, entry.base_namespace);
    AMAXSCOPE_CHECK(
        other == nullptr, ErrorCode::kUsage,
        "feature registry: {} is taken by {} in the {} namespace; a feature needs names of its own", word,
        other->schema.name, namespace_name(entry.base_namespace));
  }
  entries_.push_back(std::move(entry));
}

const FeatureEntry* FeatureRegistry::find(std::string_view name, bool base_namespace) const noexcept {
  for (const FeatureEntry& entry : entries_) {
    if (entry.base_namespace != base_namespace) continue;
    const auto& aliases = entry.schema.deprecated_aliases;
    if (entry.schema.name == name || std::find(aliases.begin(), aliases.end(), name) != aliases.end()) {
      return &entry;
    }
  }
  return nullptr;
}

std::vector<std::string> FeatureRegistry::names(bool base_namespace) const {
  std::vector<std::string> names;
  for (const FeatureEntry& entry : entries_) {
    if (entry.base_namespace == base_namespace) names.push_back(entry.schema.name);
  }
  return names;
}

}  // namespace amaxscope
