#include "runtime/storage/npy_header.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "core/error.hpp"

namespace amaxscope {

namespace {

constexpr std::size_t kMostDimensions = 64;

/// As much of Python's grammar as the format uses.
class LiteralReader {
 public:
  LiteralReader(std::string_view text, const std::string& source) : text_(text), source_(source) {}

  NpyHeader header() {
    NpyHeader header;
    bool has_descr = false;
    bool has_order = false;
    bool has_shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string key = string();
      expect(':');
      if (key == "descr") {
        once(has_descr, key);
        header.descr = string();
      } else if (key == "fortran_order") {
        once(has_order, key);
        header.fortran_order = boolean();
      } else if (key == "shape") {
        once(has_shape, key);
        header.shape = tuple();
      } else {
        refuse(fmt::format("has the key '{}'; descr, fortran_order and shape are allowed", key));
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (position_ != text_.size()) refuse("goes on after its end");
    if (!has_descr || !has_order || !has_shape) {
      refuse(fmt::format("has no {}", !has_descr ? "descr" : (!has_order ? "fortran_order" : "shape")));
    }
    return header;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: its header {} (at byte {} of the header)", source_, what, position_));
  }
  void once(bool& seen, const std::string& key) const {
    if (seen) refuse(fmt::format("has '{}' twice", key));
    seen = true;
  }
  void skip_space() {
    while (position_ < text_.size() &&
           std::string_view(" \t\n\r").find(text_[position_]) != std::string_view::npos) {
      ++position_;
    }
  }
  bool accept(char wanted) {
    skip_space();
    if (position_ == text_.size() || text_[position_] != wanted) return false;
    ++position_;
    return true;
  }
  void expect(char wanted) {
    if (!accept(wanted))
      refuse(fmt::format("is not a dictionary of descr, fortran_order and shape: '{}' is missing", wanted));
  }
  bool accept_word(std::string_view word) {
    skip_space();
    if (text_.substr(position_, word.size()) != word) return false;
    position_ += word.size();
    return true;
  }

  std::string string() {
    skip_space();
    const char quote = position_ < text_.size() ? text_[position_] : '\0';
    if (quote == '[' || quote == '(') refuse("describes a structure; arrays of one plain type can be read");
    if (quote != '\'' && quote != '"') refuse("lacks a quoted word");
    const std::size_t end = text_.find(quote, position_ + 1);
    if (end == std::string_view::npos) refuse("has a quote that does not end");
    const std::string_view word = text_.substr(position_ + 1, end - position_ - 1);
    if (word.find('\\') != std::string_view::npos) refuse("has an escape in a word");
    position_ = end + 1;
    return std::string(word);
  }

  bool boolean() {
    if (accept_word("True")) return true;
    if (accept_word("False")) return false;
    refuse("has neither True nor False as fortran_order");
  }

  std::vector<std::int64_t> tuple() {
    expect('(');
    std::vector<std::int64_t> values;
    while (!accept(')')) {
      skip_space();
      std::int64_t value = 0;
      const char* const begin = text_.data() + position_;
      const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
      if (error != std::errc() || value < 0) refuse("has an extent in shape that is no number from 0 on");
      if (values.size() == kMostDimensions)
        refuse(fmt::format("has more than {} dimensions", kMostDimensions));
      values.push_back(value);
      position_ += static_cast<std::size_t>(end - begin);
      static_cast<void>(accept('L'));  // Python 2 wrote its long integers so
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return values;
  }

  std::string_view text_;
  const std::string& source_;
  std::size_t position_ = 0;
};

}  // namespace

NpyHeader parse_npy_header(std::string_view text, const std::string& source) {
  return LiteralReader(text, source).header();
}

}  // namespace amaxscope
