// The amax behind a scale that a feature makes, and over which ranks it is taken (`amax_scope`). Free
// functions.
#pragma once

#include "runtime/feature/feature.hpp"
#include "runtime/feature/schema.hpp"
#include "runtime/quantizers/current_scaling.hpp"

namespace amaxscope {

/// The key as all features that make scales have it.
KeySchema amax_scope_key();

/// The key's value, or the session's default.
AmaxScope amax_scope_of(const FeatureParams& params, AmaxScope session_default);

/// Whether a feature that makes a scale from the amax of a tensor takes one of this weight over tp in this
/// iteration: some GEMM lists it, that is due, has_amax says its keys ask for such a scale, and the ranks of
/// the scope hold parts of it.
bool lists_amax_over_tp(const FeatureConfig& config, const InspectedTensor& weight, std::int64_t iteration,
                        AmaxScope session_default, bool (*has_amax)(const FeatureParams&));

/// The scale for max |x| over the ranks of the scope, where x is: a collective over tp_group where
/// reduces_amax says so, with 0 from a rank whose shard is empty.
Float8Scale scoped_scale(const ModifyContext& context, const ScaleOptions& options);

/// MAX of amaxes over the ranks of the scope, in place; the collective of scoped_scale.
void reduce_scoped(const ModifyContext& context, const MutableTensorView& amaxes);

}  // namespace amaxscope
