#include "runtime/config/python_pattern.hpp"

#include <fmt/format.h>

#include <cctype>

#include "core/error.hpp"
#include "runtime/config/diagnostics.hpp"

namespace amaxscope {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_hex(char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; }

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  PcrePattern run() {
    while (at_ < pattern_.size()) {
      switch (pattern_[at_]) {
        case '\\':
          escape(false);
          break;
        case '[':
          set();
          break;
        case '(':
          group();
          break;
        case '{':
          braces();
          break;
        case '#':
          verbose_ ? copy_through('\n') : copy(1);
          break;
        default:
          copy(1);
      }
    }
    return std::move(result_);
  }

 private:
  [[noreturn]] void fail(std::size_t offset, std::string_view what) const {
    throw Error(ErrorCode::kConfig,
                fmt::format("pattern {}: {} at offset {}", in_quotes(pattern_), what, offset));
  }
  [[nodiscard]] char peek(std::size_t ahead) const {
    return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0';
  }
  [[nodiscard]] std::string_view rest() const { return pattern_.substr(at_); }

  void emit(std::string_view text, std::size_t origin) {
    result_.text += text;
    result_.origin.insert(result_.origin.end(), text.size(), origin);
  }
  void copy(std::size_t count) {
    for (std::size_t i = 0; i < count && at_ < pattern_.size(); ++i, ++at_)
      emit(pattern_.substr(at_, 1), at_);
  }
  void replace(std::size_t count, std::string_view text) {
    emit(text, at_);
    at_ += count;
  }
  void copy_through(char last) {
    const std::size_t end = pattern_.find(last, at_);
    copy(end == std::string_view::npos ? pattern_.size() - at_ : end - at_ + 1);
  }

  void code_point(std::size_t digits) {
    const std::string_view hex = pattern_.substr(std::min(at_ + 2, pattern_.size()), digits);
    bool complete = hex.size() == digits;
    for (const char c : hex) complete = complete && is_hex(c);
    if (!complete) fail(at_, fmt::format("incomplete escape \\{}", peek(1)));
    replace(2 + digits, digits == 2 ? fmt::format("\\x{}", hex) : fmt::format("\\x{{{}}}", hex));
  }

  // Letters that Python gives a meaning to; \A, \B and \Z have none in a set.
  void escape(bool in_set) {
    const char c = peek(1);
    if (at_ + 1 == pattern_.size()) fail(at_, "bad escape (end of pattern)");
    switch (c) {
      case 'x':
        return code_point(2);
      case 'u':
        return code_point(4);
      case 'U':
        return code_point(8);
      case 'v':
        return replace(2, "\\x0b");
      case 'Z':
        if (!in_set) return replace(2, "\\z");
        break;
      default:
        break;
    }
    const std::string_view known = in_set ? "abdDfnrsStwW" : "AabBdDfnrsStwW";
    if (is_letter(c) && known.find(c) == std::string_view::npos) fail(at_, fmt::format("bad escape \\{}", c));
    copy(2);
  }

  void set() {
    const std::size_t start = at_;
    copy(1);
    if (peek(0) == '^') copy(1);
    if (peek(0) == ']') copy(1);
    while (at_ < pattern_.size() && pattern_[at_] != ']') {
      if (pattern_[at_] == '\\') {
        escape(true);
      } else if (pattern_[at_] == '[') {
        replace(1, "\\[");  // PCRE2 would begin a POSIX class at "[:"
      } else {
        copy(1);
      }
    }
    if (at_ == pattern_.size()) fail(start, "unterminated character set");
    copy(1);
  }

  // Python reads {,n} as {0,n}; PCRE2 10.42 as literal text.
  void braces() {
    std::size_t digits = 2;
    while (is_digit(peek(digits))) ++digits;
    peek(1) == ',' && peek(digits) == '}' ? replace(2, "{0,") : copy(1);
  }

  void group() {
    if (peek(1) == '*') fail(at_ + 1, "nothing to repeat");
    if (peek(1) != '?') return copy(1);
    const char kind = peek(2);
    const char next = peek(3);
    if (kind == '#') return copy_through(')');
    if (kind == ':' || kind == '=' || kind == '!' || kind == '>') return copy(3);
    if (kind == '<' && (next == '=' || next == '!')) return copy(4);
    if (kind == 'P' && (next == '<' || next == '=')) return copy(4);
    if (kind == '(') return condition();
    if (kind != 'P' && (is_letter(kind) || kind == '-')) return flags();
    fail(at_, fmt::format("unknown extension {}", rest().substr(0, kind == 'P' || kind == '<' ? 4 : 3)));
  }

  // (?(1)yes|no) and (?(name)yes|no); a bare name could be read as one of PCRE2's own words.
  void condition() {
    const std::size_t end = pattern_.find(')', at_);
    if (end == std::string_view::npos) fail(at_, "missing ), unterminated name");
    const std::string_view name = pattern_.substr(at_ + 3, end - at_ - 3);
    if (name.empty() || is_digit(name.front())) return copy(end - at_ + 1);
    replace(end - at_ + 1, fmt::format("(?(<{}>)", name));
  }

  void flags() {
    std::size_t end = at_ + 2;
    std::string kept;
    while (end < pattern_.size() && (is_letter(pattern_[end]) || pattern_[end] == '-')) {
      const char flag = pattern_[end];
      if (flag == 'a' || flag == 'L') fail(end, fmt::format("flag {} is not supported", flag));
      if (std::string_view("imsux-").find(flag) == std::string_view::npos) {
        fail(end, fmt::format("unknown flag {}", flag));
      }
      if (flag == 'x' && kept.find('-') == std::string::npos) verbose_ = true;
      if (flag != 'u') kept += flag;  // Unicode is what we have anyway
      ++end;
    }
    const char closing = end < pattern_.size() ? pattern_[end] : '\0';
    if (closing != ':' && closing != ')') fail(end, "missing -, : or )");
    // Flags for the whole pattern: PCRE2 would apply them from here on, Python refuses them anywhere but in
    // front.
    if (closing == ')' && result_.text.size() != leading_flags_) {
      fail(at_, "global flags not at the start of the expression");
    }
    const bool nothing = kept.empty() && closing == ')';
    replace(end + 1 - at_, nothing ? "" : fmt::format("(?{}{}", kept, closing));
    if (closing == ')') leading_flags_ = result_.text.size();
  }

  std::string_view pattern_;
  PcrePattern result_;
  std::size_t at_ = 0;
  std::size_t leading_flags_ = 0;  // how much of the result is flags in front
  bool verbose_ = false;
};

}  // namespace

PcrePattern python_to_pcre(std::string_view pattern) { return Translator(pattern).run(); }

}  // namespace amaxscope
