// One feature of one section of the YAML, validated and resolved per (GEMM, tensor). Read-only after loading.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/value.hpp"
#include "runtime/names.hpp"
#include "runtime/schedule/schedule.hpp"

namespace amaxscope {

/// The keys that hold for one (GEMM, tensor): outer keys, overlaid by the GEMM's entry, overlaid by the
/// tensor's.
struct FeatureParams {
  std::map<std::string, ConfigValue, std::less<>> values;  ///< schema-checked; without list and schedule keys
  Schedule schedule;

  [[nodiscard]] const ConfigValue* find(std::string_view key) const;
  /// The value of a key the schema has checked, or the fallback.
  [[nodiscard]] bool get_bool(std::string_view key, bool fallback) const;
  [[nodiscard]] std::int64_t get_integer(std::string_view key, std::int64_t fallback) const;
  [[nodiscard]] double get_number(std::string_view key, double fallback) const;
  [[nodiscard]] std::string get_string(std::string_view key, std::string_view fallback) const;
  /// Entries of a list of strings; a bare string is a list of one.
  [[nodiscard]] std::vector<std::string> get_strings(std::string_view key) const;
};

/// A statistic as the YAML asks for it.
struct StatRequest {
  std::string name;
  std::map<std::string, std::int64_t, std::less<>> parameters;
  SourcePosition position;
};
/// Entries of a kStatList key, in order. Identical ones count once; the same name with other parameters is
/// another statistic.
std::vector<StatRequest> stat_requests(const FeatureParams& params, std::string_view key = "stats");

struct FeatureConfig {
  std::string name;     ///< canonical ("DisableQuantizationGEMM"), also when an alias was written
  std::string section;  ///< the section it stands in
  SourcePosition position;
  bool base_namespace = false;

  /// Keyed by what the feature takes: {gemm, tensor}, {gemm, none}, {none, tensor} or {none, none}. Only
  /// selected combinations are present, and only those that can occur (weight in wgrad cannot).
  std::map<std::pair<std::optional<Gemm>, std::optional<TensorKind>>, FeatureParams> selected;
  /// Base namespace: by free tensor name.
  std::map<std::string, FeatureParams, std::less<>> selected_names;
  /// The outer keys alone: for observed tensors, which have no GEMM.
  FeatureParams outer;

  /// Null when not selected. Pass what the feature's schema takes; a tensor alone for a feature that takes
  /// both finds nothing.
  [[nodiscard]] const FeatureParams* params(std::optional<Gemm> gemm, std::optional<TensorKind> tensor) const;
};

}  // namespace amaxscope
