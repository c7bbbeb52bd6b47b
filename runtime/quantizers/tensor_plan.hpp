// What the features decide about one tensor of a layer at one iteration. Pure: the same on all ranks that
// have the same features, layer and iteration.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "runtime/feature/feature.hpp"

namespace amaxscope {

enum class Plan {
  kStandardQuantize,  ///< the recipe's quantizer
  kHighPrecision,     ///< the tensor itself, in the compute dtype
  kModifyTensor,      ///< the one feature that modifies it
};
/// As `amaxscope check` prints: "Quantize", "High Precision", "modify_tensor()".
std::string_view to_string(Plan plan) noexcept;

struct DirectionPlan {
  Plan plan = Plan::kHighPrecision;
  Feature* modifier = nullptr;            ///< of kModifyTensor
  const FeatureParams* params = nullptr;  ///< the modifier's for this GEMM and tensor
  std::vector<Feature*> disabling = {};   ///< features that keep the GEMM in high precision
};

/// Whether one call of the modifying feature serves both directions: the same feature under the same keys.
bool modified_alike(const DirectionPlan& a, const DirectionPlan& b);

struct TensorPlan {
  std::int64_t iteration = -1;
  std::array<DirectionPlan, 2> directions = {};      ///< by Direction
  std::vector<Feature*> inspecting = {};             ///< in the order of the file
  bool needs_gemm_inputs = false;                    ///< one of them does the GEMM again
  std::optional<std::int64_t> next = {};             ///< when any answer may change; none: never
  std::optional<std::int64_t> directions_next = {};  ///< when that of a direction may
  bool differs = false;                              ///< from what a layer without features does
};

/// Asks each feature once. Modifying beats everything else; fp8_gemm_enabled is asked only where there is a
/// quantizer and nobody modifies, and all features must agree to it.
/// tensor: of a GEMM layer. Throws Error(kConfig) when two features modify the same (gemm, tensor).
TensorPlan plan_tensor(const InspectedTensor& tensor, bool has_quantizer, std::span<Feature* const> features,
                       std::int64_t iteration);

/// For a step that is captured into a CUDA graph: the directions of this iteration, and every feature that
/// inspects in it or may in a later one. None of them gets the inputs of a GEMM.
TensorPlan plan_capture(const InspectedTensor& tensor, bool has_quantizer, std::span<Feature* const> features,
                        std::int64_t iteration);

/// The error for two features that modify one tensor of a GEMM.
Error modify_conflict(const LayerDescription& layer, Gemm gemm, TensorKind tensor, const Feature& first,
                      const Feature& second, std::int64_t iteration);

}  // namespace amaxscope
