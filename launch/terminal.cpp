#include "launch/terminal.hpp"

#include <unistd.h>

#include <cstdlib>
#include <string>

#include "core/terminal_text.hpp"

namespace amaxscope::launch {

bool is_terminal(std::FILE* stream) {
  const char* told = std::getenv("AMAXSCOPE_TERMINAL");
  return ::isatty(::fileno(stream)) != 0 || (told != nullptr && std::string_view(told) == "1");
}

void say(std::FILE* stream, std::string_view text) {
  const std::string shown = terminal_text(text);
  static_cast<void>(std::fwrite(shown.data(), 1, shown.size(), stream));
}

}  // namespace amaxscope::launch
