// Which features exist. Built explicitly by programs (features/builtin.hpp adds the built-in ones, users
// their own) and given to the session; there is no global list. Read-only once a session uses it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/feature/feature.hpp"
#include "runtime/feature/schema.hpp"

namespace amaxscope {

struct FeatureEntry {
  FeatureSchema schema;
  bool base_namespace = false;
  std::function<std::unique_ptr<Feature>(FeatureConfig)> make;
};

class FeatureRegistry {
 public:
  /// Throws Error(kUsage) when the name or an alias exists in the namespace already, there is no factory, or
  /// a statistic has a parameter that is not an integer.
  void add(FeatureEntry entry);
  /// By name or deprecated alias; null when unknown.
  [[nodiscard]] const FeatureEntry* find(std::string_view name, bool base_namespace) const noexcept;
  [[nodiscard]] std::vector<std::string> names(bool base_namespace) const;
  /// In order of addition.
  [[nodiscard]] const std::vector<FeatureEntry>& entries() const noexcept { return entries_; }

 private:
  std::vector<FeatureEntry> entries_;
};

}  // namespace amaxscope
