// UTF-8, one character at a time, from bytes that may be anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace amaxscope {

struct Utf8Character {
  std::uint32_t code = 0;
  std::size_t bytes = 0;  ///< 0: not well-formed
};

/// The character that begins at a byte of the text; `at` is within it. Well-formed is what the Unicode
/// standard's table 3-7 has.
Utf8Character decode_utf8(std::string_view text, std::size_t at) noexcept;

}  // namespace amaxscope
