// A pattern is searched for, so "decoder\\.1" is also in "decoder.10": what to tell people who may not have
// meant that. A pure function.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/config/layer_selector.hpp"

namespace amaxscope {

/// names: those that the pattern selects. None when it takes none of them by a part of a number only; else
/// one sentence with such names and, where one selects the others and not these, the pattern to use instead.
std::optional<std::string> number_hint(const Pattern& pattern, const std::vector<std::string>& names);

}  // namespace amaxscope
