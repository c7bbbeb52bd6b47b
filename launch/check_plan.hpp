// The effective plan of a debug config for given layers, computed as a session would compute it, without
// training.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/config/config.hpp"
#include "runtime/feature/registry.hpp"
#include "runtime/quantizers/recipe.hpp"

namespace amaxscope::launch {

struct PlanRow {
  std::string layer;
  std::string tensor;
  std::string gemm;
  std::int64_t iteration = 0;
  std::string plan;  ///< "Quantize", "High Precision", "modify_tensor()"
  bool inspect = false;
  std::vector<std::string> features;  ///< that act on this tensor and GEMM, in the order of the file

  /// Whether the two differ in nothing but the iteration.
  [[nodiscard]] bool same_plan(const PlanRow& other) const;
};

struct PlanRequest {
  std::vector<std::string> layers;
  std::int64_t first_iteration = 0;
  std::int64_t last_iteration = 0;  ///< inclusive
  RecipeKind recipe = RecipeKind::kDelayed;
};

struct EffectivePlan {
  std::vector<PlanRow> rows;                                       ///< by layer, tensor, GEMM, iteration
  std::map<std::string, std::vector<std::string>> section_layers;  ///< of enabled sections
  std::vector<std::string> warnings;        ///< of features about layers, of patterns about numbers
  std::optional<std::int64_t> next_change;  ///< first iteration after the last one at which a plan may change
};

/// Throws Error(kConfig) with every complaint: sections that match no layer (with the nearest names),
/// features that cannot serve a layer, conflicts. Throws Error(kUsage) for a recipe that is not built yet and
/// for over 2 million rows.
EffectivePlan effective_plan(const Config& config, const FeatureRegistry& registry,
                             const PlanRequest& request);

}  // namespace amaxscope::launch
