// What the logging features have in common. Pure functions.
#pragma once

#include "runtime/feature/feature.hpp"
#include "runtime/feature/schema.hpp"

namespace amaxscope {

/// The keys that hold for a tensor: of its kind for a GEMM's tensor, of its free name in the base namespace,
/// the outer keys for an observed tensor. Null when the feature does not select it.
const FeatureParams* params_of_inspected(const FeatureConfig& config, const InspectedTensor& tensor);

/// The key `stats` as every logging feature has it.
KeySchema stats_key();

/// Whether what is handed in now is to be counted: it is not a recompute, the original is there, and a weight
/// has not been fed before in this step (it is the same in every micro-batch).
bool counts(const InspectContext& context, const StatAccumulator& accumulator);

}  // namespace amaxscope
