// The built-in features, listed explicitly. Read only by programs and bindings.
#pragma once

#include "runtime/feature/registry.hpp"

namespace amaxscope {

/// A registry that knows every feature of features/.
FeatureRegistry builtin_features();

}  // namespace amaxscope
