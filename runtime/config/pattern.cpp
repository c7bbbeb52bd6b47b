#define PCRE2_CODE_UNIT_WIDTH 8

#include <fmt/format.h>
#include <pcre2.h>

#include <array>
#include <memory>

#include "core/error.hpp"
#include "runtime/config/layer_selector.hpp"
#include "runtime/config/python_pattern.hpp"
#include "runtime/config/yaml_text.hpp"

namespace amaxscope {

namespace {

// A layer name is short: a pattern that needs more than this backtracks without end.
constexpr std::uint32_t kMatchLimit = 1'000'000;
constexpr std::uint32_t kDepthLimit = 100'000;
constexpr std::uint32_t kHeapLimitKib = 32 * 1024;

struct Free {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
template <class T>
using Owned = std::unique_ptr<T, Free>;

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

bool digit(char c) { return c >= '0' && c <= '9'; }

PCRE2_SPTR bytes(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

}  // namespace

struct Pattern::Compiled {
  Owned<pcre2_code> code;
};

Pattern::Pattern(std::string text) : text_(std::move(text)), compiled_(std::make_unique<Compiled>()) {
  const PcrePattern translated = python_to_pcre(text_);
  // Python's "." stops at "\n" only, whatever PCRE2 was built with.
  const Owned<pcre2_compile_context> context(pcre2_compile_context_create(nullptr));
  AMAXSCOPE_CHECK(context != nullptr, ErrorCode::kInternal, "PCRE2: out of memory");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_bsr(context.get(), PCRE2_BSR_UNICODE);
  // Layer names come from programs and may be any bytes; the invalid parts of one match nothing.
  const std::uint32_t options =
      is_utf8(translated.text) ? PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF : 0U;
  int code = 0;
  PCRE2_SIZE offset = 0;
  compiled_->code.reset(
      pcre2_compile(bytes(translated.text), translated.text.size(), options, &code, &offset, context.get()));
  if (compiled_->code == nullptr) {
    const std::size_t at = offset < translated.origin.size() ? translated.origin[offset] : text_.size();
    throw Error(ErrorCode::kConfig,
                fmt::format("pattern {}: {} at offset {}", in_quotes(text_), message_of(code), at));
  }
}

Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;

bool Pattern::found_in(std::string_view subject) const { return match(subject, 0).has_value(); }

bool Pattern::cuts_number_in(std::string_view subject) const {
  std::optional<Match> found = match(subject, 0);
  const bool is_found = found.has_value();
  while (found) {
    const std::size_t end = found->end;
    const bool inside =
        end > found->begin && end < subject.size() && digit(subject[end - 1]) && digit(subject[end]);
    if (!inside) return false;
    // Another match of the same name may end well; a search has to start at the start of a character.
    std::size_t next = found->begin + 1;
    while (next < subject.size() && (static_cast<unsigned char>(subject[next]) & 0xC0U) == 0x80U) ++next;
    found = match(subject, next);
  }
  return is_found;
}

std::optional<Pattern::Match> Pattern::match(std::string_view subject, std::size_t from) const {
  const Owned<pcre2_match_context> context(pcre2_match_context_create(nullptr));
  const Owned<pcre2_match_data> data(pcre2_match_data_create(1, nullptr));
  AMAXSCOPE_CHECK(context != nullptr && data != nullptr, ErrorCode::kInternal, "PCRE2: out of memory");
  pcre2_set_match_limit(context.get(), kMatchLimit);
  pcre2_set_depth_limit(context.get(), kDepthLimit);
  pcre2_set_heap_limit(context.get(), kHeapLimitKib);
  // An empty view may have no data, which PCRE2 10.42 refuses.
  const std::string_view safe = subject.data() == nullptr ? std::string_view("") : subject;
  const int result =
      pcre2_match(compiled_->code.get(), bytes(safe), safe.size(), from, 0, data.get(), context.get());
  if (result == PCRE2_ERROR_NOMATCH) return std::nullopt;
  AMAXSCOPE_CHECK(result >= 0, ErrorCode::kConfig,
                  "pattern {}: matching it against {} was given up: {}; write it without nested repeats",
                  in_quotes(text_), in_quotes(subject), message_of(result));
  const PCRE2_SIZE* const bounds = pcre2_get_ovector_pointer(data.get());
  return Match{bounds[0], bounds[1]};
}

}  // namespace amaxscope
