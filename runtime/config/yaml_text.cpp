#include "runtime/config/yaml_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "core/utf8.hpp"

namespace amaxscope {

namespace {

// YAML 1.1, production c-printable.
bool printable(std::uint32_t code) noexcept {
  return code == '\t' || code == '\n' || code == '\r' || (code >= 0x20 && code <= 0x7E) || code == 0x85 ||
         (code >= 0xA0 && code <= 0xD7FF) || (code >= 0xE000 && code <= 0xFFFD && code != 0xFEFF) ||
         code >= 0x10000;
}

}  // namespace

bool is_utf8(std::string_view bytes) noexcept {
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t length = decode_utf8(bytes, at).bytes;
    if (length == 0) return false;
    at += length;
  }
  return true;
}

YamlText::YamlText(std::string text) : text_(std::move(text)), line_starts_{0}, continuation_bytes_{0} {
  continuation_bytes_.reserve(text_.size() + 1);
  for (std::size_t at = 0; at < text_.size(); ++at) {
    if (text_[at] == '\n') line_starts_.push_back(at + 1);
    const bool continues = (static_cast<unsigned char>(text_[at]) & 0xC0) == 0x80;
    continuation_bytes_.push_back(continuation_bytes_.back() + (continues ? 1 : 0));
  }
}

SourcePosition YamlText::position(int line, int column_bytes) const {
  if (line < 0 || column_bytes < 0) return {};
  const std::size_t row = std::min(static_cast<std::size_t>(line), line_starts_.size() - 1);
  const std::size_t begin = line_starts_[row];
  const std::size_t end = std::min(begin + static_cast<std::size_t>(column_bytes), text_.size());
  const std::size_t characters = end - begin - (continuation_bytes_[end] - continuation_bytes_[begin]);
  return {static_cast<int>(row) + 1, static_cast<int>(characters) + 1};
}

std::optional<YamlText> YamlText::accept(std::string_view raw, Diagnostics& diagnostics) {
  if (raw.size() > kMaxConfigBytes) {
    diagnostics.error({}, fmt::format("the config has {} bytes; at most {} (1 MiB) are allowed", raw.size(),
                                      kMaxConfigBytes));
    return std::nullopt;
  }
  if (raw.starts_with("\xEF\xBB\xBF")) raw.remove_prefix(3);
  std::string text;
  text.reserve(raw.size());
  SourcePosition position{1, 1};
  for (std::size_t at = 0; at < raw.size();) {
    const Utf8Character character = decode_utf8(raw, at);
    if (character.bytes == 0) {
      diagnostics.error(position, fmt::format("byte 0x{:02x} is not UTF-8; a config is UTF-8 text",
                                              static_cast<unsigned char>(raw[at])));
      return std::nullopt;
    }
    if (!printable(character.code)) {
      diagnostics.error(position,
                        fmt::format("character U+{:04X} is not allowed in YAML; write it as an escape in "
                                    "double quotes",
                                    character.code));
      return std::nullopt;
    }
    at += character.bytes;
    const bool lone_return = character.code == '\r' && (at == raw.size() || raw[at] != '\n');
    if (character.code == '\n' || lone_return) {
      text += '\n';
      position = {position.line + 1, 1};
      continue;
    }
    if (character.code != '\r') text.append(raw, at - character.bytes, character.bytes);
    ++position.column;
  }
  return YamlText(std::move(text));
}

}  // namespace amaxscope
