#include "launch/terminal.hpp"

#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace amaxscope::launch {

bool is_terminal(std::FILE* stream) {
  const char* told = std::getenv("AMAXSCOPE_TERMINAL");
  return ::isatty(::fileno(stream)) != 0 || (told != nullptr && std::string_view(told) == "1");
}

}  // namespace amaxscope::launch
