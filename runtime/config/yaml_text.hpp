// What a YAML text must be before a parser sees it: bounded, UTF-8, printable, with plain line ends.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/diagnostics.hpp"

namespace amaxscope {

inline constexpr std::size_t kMaxConfigBytes = std::size_t{1} << 20;

/// Also translates a parser's byte columns to character columns.
class YamlText {
 public:
  /// No value, and an error in the diagnostics, when the text is over kMaxConfigBytes, is not UTF-8, or holds
  /// a character that YAML forbids. A byte order mark is dropped; "\r\n" and "\r" become "\n".
  static std::optional<YamlText> accept(std::string_view raw, Diagnostics& diagnostics);

  [[nodiscard]] const std::string& text() const noexcept { return text_; }
  /// line and column_bytes count from 0.
  [[nodiscard]] SourcePosition position(int line, int column_bytes) const;

 private:
  explicit YamlText(std::string text);
  std::string text_;
  std::vector<std::size_t> line_starts_;
  std::vector<std::uint32_t> continuation_bytes_;  ///< [i]: of UTF-8, before byte i
};

/// Whether the bytes are well-formed UTF-8.
bool is_utf8(std::string_view bytes) noexcept;

}  // namespace amaxscope
