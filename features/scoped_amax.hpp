// The amax behind a scale that a feature makes, and over which ranks it is taken (`amax_scope`). Free
// functions.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/feature/feature.hpp"
#include "runtime/feature/schema.hpp"

namespace amaxscope {

/// The key as all features that make scales have it.
KeySchema amax_scope_key();

/// The key's value, or the session's default.
AmaxScope amax_scope_of(const FeatureParams& params, AmaxScope session_default);

/// Bits of max |x| over the ranks of the scope: a collective over tp_group where reduces_amax says so, with 0
/// from a rank whose shard is empty.
std::uint32_t scoped_amax(const ModifyContext& context);

/// MAX of amaxes over the ranks of the scope, in place; the collective of scoped_amax.
void reduce_scoped(const ModifyContext& context, std::span<std::uint32_t> amaxes);

}  // namespace amaxscope
