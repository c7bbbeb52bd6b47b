// From YAML text to a ConfigValue. Internal to config/; others use parse_yaml of value.hpp.
#pragma once

#include <optional>
#include <string_view>

#include "runtime/config/value.hpp"

namespace amaxscope {

/// No value when the text cannot be read at all. A value together with errors in the diagnostics when single
/// places are wrong (a duplicate key, a tag), so that the rest of the file can still be checked; those places
/// are null.
std::optional<ConfigValue> read_yaml(std::string_view text, Diagnostics& diagnostics);

}  // namespace amaxscope
