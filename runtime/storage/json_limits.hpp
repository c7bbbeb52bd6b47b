// How much JSON is taken from files that may be anybody's. nlohmann::json parses any depth, but copies and
// prints it by recursion, and a text of n bytes may become 30 n bytes of objects.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace amaxscope {

struct JsonLimits {
  std::size_t depth = 32;          ///< objects and lists within each other
  std::size_t values = 4'000'000;  ///< keys and values together; some 100 bytes each
};

/// What of the limits a text goes over, "is nested deeper than 32 levels"; empty when none. Looks at brackets
/// and commas only: whether it is JSON at all is for the parser to say. Linear in the text.
std::string json_excess(std::string_view text, const JsonLimits& limits = {});

}  // namespace amaxscope
