#include "collectives/last_line.hpp"

#include <cstdio>
#include <string>

namespace amaxscope {

void write_last_line(std::string_view text) noexcept {
  const std::string line = std::string(text) + "\n";
  std::fflush(nullptr);
  static_cast<void>(std::fwrite(line.data(), 1, line.size(), stderr));
}

}  // namespace amaxscope
