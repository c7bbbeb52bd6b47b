// What a plain scalar of YAML 1.1 means.
#pragma once

#include <string>
#include <string_view>

#include "runtime/config/value.hpp"

namespace amaxscope {

struct ResolvedScalar {
  ConfigValue::Data data;
  std::string error;  ///< not empty: why the scalar has no value
};

/// Null, bool, integer, number or string, by the rules of PyYAML's safe loader. Beyond them 1e-3 and 0o17 are
/// numbers. A word that PyYAML would read as base 60 ("1:30" is 90) is refused, as nobody means it.
ResolvedScalar resolve_plain_scalar(std::string_view text);

}  // namespace amaxscope
