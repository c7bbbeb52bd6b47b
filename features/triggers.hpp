// What the features that can set off the whole job have in common. Pure functions.
#pragma once

#include <string>

#include "runtime/feature/feature.hpp"
#include "runtime/feature/schema.hpp"

namespace amaxscope {

/// The key `action`. doc: what is found, as in "a broken invariant".
KeySchema action_key(const std::string& doc);

/// Its value. Throws Error(kConfig) when an entry of tensors_struct sets another: what the job does cannot
/// depend on the tensor.
EventAction action_of(const Feature& feature);

}  // namespace amaxscope
