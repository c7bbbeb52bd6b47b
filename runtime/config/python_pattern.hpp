// Python's regular expressions, rewritten for PCRE2. Internal to config/.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace amaxscope {

struct PcrePattern {
  std::string text;
  std::vector<std::size_t> origin;  ///< for each byte of text, the offset in the Python pattern it comes from
};

/// The two dialects agree on almost everything; what differs is rewritten (the escapes Z, v and uXXXX, the
/// repetition {,n}, "[" in a set) or, where Python has no such construct, refused as Python refuses it, so
/// that a pattern never means something else here. Throws Error(kConfig) with the offset.
PcrePattern python_to_pcre(std::string_view pattern);

}  // namespace amaxscope
