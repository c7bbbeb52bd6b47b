#include "runtime/storage/json_limits.hpp"

#include <fmt/format.h>

namespace amaxscope {

std::string json_excess(std::string_view text, const JsonLimits& limits) {
  std::size_t depth = 0;
  std::size_t values = 1;
  bool quoted = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (quoted) {
      if (c == '\\') ++at;
      quoted = c != '"';
      continue;
    }
    switch (c) {
      case '"':
        quoted = true;
        break;
      case '{':
      case '[':
        ++values;
        if (++depth > limits.depth) return fmt::format("is nested deeper than {} levels", limits.depth);
        break;
      case '}':
      case ']':
        if (depth > 0) --depth;
        break;
      case ',':
      case ':':
        ++values;
        break;
      default:
        break;
    }
    if (values > limits.values) return fmt::format("has more than {} values", limits.values);
  }
  return {};
}

}  // namespace amaxscope
