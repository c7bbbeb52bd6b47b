// The last that a process says before it ends. Internal to the backends.
#pragma once

#include <string_view>

namespace amaxscope {

/// To standard error, in one write, because the ranks share the stream; what was printed before comes first.
/// A newline is added.
void write_last_line(std::string_view text) noexcept;

}  // namespace amaxscope
