// Errors of the library: what went wrong, of which kind, and where in our source it was noticed.
// Thread safety: an Error is a value. Nothing here blocks.
#pragma once

#include <fmt/format.h>

#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>

namespace amaxscope {

/// The kind decides what a caller does: usage, config and input are the user's to mend (exit status 2).
enum class ErrorCode {
  kUsage,     ///< wrong call or option
  kConfig,    ///< the debug YAML is wrong
  kInput,     ///< a data file is wrong or missing
  kTensor,    ///< dtype, shape, device or layout of a tensor does not fit the operation
  kMismatch,  ///< ranks of a group disagree
  kDeadline,  ///< a collective did not complete in time
  kIo,        ///< the operating system refused a read or write
  kStopped,   ///< a feature ended the run, as the config asked
  kInternal,  ///< a bug of this library
};

std::string_view to_string(ErrorCode code) noexcept;

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message,
        std::source_location site = std::source_location::current());
  [[nodiscard]] ErrorCode code() const noexcept { return code_; }
  /// Where in this library the error was raised; for bug reports, not part of what().
  [[nodiscard]] const std::source_location& site() const noexcept { return site_; }
  /// True for what the user can mend by changing the call, the YAML or the data.
  [[nodiscard]] bool is_bad_input() const noexcept {
    return code_ == ErrorCode::kUsage || code_ == ErrorCode::kConfig || code_ == ErrorCode::kInput;
  }

 private:
  ErrorCode code_;
  std::source_location site_;
};

}  // namespace amaxscope

/// Throws amaxscope::Error of the given kind, with a fmt-formatted message, unless the condition holds.
#define AMAXSCOPE_CHECK(condition, code, ...)                       \
  do {                                                              \
    if (!(condition)) [[unlikely]] {                                \
      throw ::amaxscope::Error((code), ::fmt::format(__VA_ARGS__)); \
    }                                                               \
  } while (false)
