#include "core/environment.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "core/error.hpp"

namespace amaxscope {

namespace {

std::string lowercase(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

template <std::size_t N>
bool is_one_of(std::string_view text, const std::array<std::string_view, N>& words) {
  return std::ranges::find(words, text) != words.end();
}

}  // namespace

Environment Environment::from_process() {
  Environment result;
  if (const char* value = std::getenv("AMAXSCOPE")) {
    constexpr std::array<std::string_view, 4> kOff = {"off", "0", "false", "no"};
    result.enabled = !is_one_of(lowercase(value), kOff);
  }
  if (const char* value = std::getenv("AMAXSCOPE_THREADS")) {
    const std::string_view text(value);
    int threads = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), threads);
    AMAXSCOPE_CHECK(
        error == std::errc() && end == text.data() + text.size() && threads >= 1, ErrorCode::kUsage,
        "AMAXSCOPE_THREADS=\"{}\" is not a number of threads; give an integer of at least 1", text);
    result.threads = threads;
  }
  if (const char* value = std::getenv("AMAXSCOPE_LOG_LEVEL")) {
    constexpr std::array<std::string_view, 5> kLevels = {"trace", "debug", "info", "warn", "error"};
    result.log_level = lowercase(value);
    AMAXSCOPE_CHECK(is_one_of(result.log_level, kLevels), ErrorCode::kUsage,
                    "AMAXSCOPE_LOG_LEVEL=\"{}\" is not one of trace, debug, info, warn, error", value);
  }
  return result;
}

}  // namespace amaxscope
