// Whether a person is watching.
#pragma once

#include <cstdio>

namespace amaxscope::launch {

/// Whether the stream is a terminal, or AMAXSCOPE_TERMINAL=1 says that the launcher hides one.
bool is_terminal(std::FILE* stream);

}  // namespace amaxscope::launch
