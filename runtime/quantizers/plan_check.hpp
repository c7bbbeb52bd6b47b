// Whether features can serve a layer together, found out at its registration instead of inside a GEMM.
#pragma once

#include <span>

#include "runtime/feature/feature.hpp"

namespace amaxscope {

/// Verifies that no two features modify the same (gemm, tensor) at one iteration, and that no GEMM gets one
/// operand as codes and the other in high precision. Throws Error(kConfig) naming the layer, the GEMM, the
/// features with their sections, and the first iteration found.
///
/// Decisions only change at the iterations that features themselves name (Decision::next), so those are the
/// ones looked at: from 0 on, up to kPlanCheckPoints of each feature. A conflict that first appears after
/// that (two alternating features whose periods meet late) is found when its iteration begins. features:
/// those that matched the layer, in the order of the file. has_recipe: operands have quantizers.
void check_plans(const LayerDescription& layer, std::span<Feature* const> features, bool has_recipe);

inline constexpr int kPlanCheckPoints = 512;

}  // namespace amaxscope
