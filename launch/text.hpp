// Text as a terminal shows it. Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace amaxscope::launch {

/// Words filled into lines of at most `width` columns, each led by `indent` spaces and ended by a newline. A
/// longer word gets a line of its own.
std::string wrapped(std::string_view text, std::size_t indent, std::size_t width);

/// Columns aligned to their widest cell, two spaces apart, without trailing spaces; the first row is the
/// heading.
std::string table(const std::vector<std::vector<std::string>>& rows);

}  // namespace amaxscope::launch
