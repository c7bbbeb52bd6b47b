// Whether a person is watching, and what they may be shown.
#pragma once

#include <cstdio>
#include <string_view>

namespace amaxscope::launch {

/// Whether the stream is a terminal, or AMAXSCOPE_TERMINAL=1 says that the launcher hides one.
bool is_terminal(std::FILE* stream);

/// Prints what may hold names of strangers: what a terminal would act on becomes "?"
/// (core/terminal_text.hpp).
void say(std::FILE* stream, std::string_view text);

}  // namespace amaxscope::launch
