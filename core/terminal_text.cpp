#include "core/terminal_text.hpp"

#include "core/utf8.hpp"

namespace amaxscope {

namespace {

bool acts(std::uint32_t code) noexcept {
  const bool control = code < 0x20 || (code >= 0x7F && code <= 0x9F);
  const bool direction = code == 0x061C || code == 0x200E || code == 0x200F ||
                         (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
  const bool separator = code == 0x2028 || code == 0x2029;
  return control || direction || separator;
}

std::string replaced(std::string_view text, std::string_view kept) {
  std::string shown;
  shown.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Character character = decode_utf8(text, at);
    if (character.bytes == 0) {
      shown += '?';
      ++at;
      continue;
    }
    const bool keeps = character.bytes == 1 && kept.find(text[at]) != std::string_view::npos;
    if (acts(character.code) && !keeps) {
      shown += '?';
    } else {
      shown += text.substr(at, character.bytes);
    }
    at += character.bytes;
  }
  return shown;
}

}  // namespace

std::string terminal_text(std::string_view text) { return replaced(text, "\n\t"); }
std::string terminal_line(std::string_view text) { return replaced(text, ""); }

}  // namespace amaxscope
