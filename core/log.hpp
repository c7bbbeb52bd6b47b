// Messages to people: warnings and notes, on stderr and in a per-rank file.
// A Log belongs to whoever made it (a session, a program); there is no global one. Thread-safe. Writes are
// flushed line by line, so that a crash loses none; a failing write never throws.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace amaxscope {

enum class LogLevel { kTrace, kDebug, kInfo, kWarn, kError };

LogLevel parse_log_level(std::string_view text);  ///< "info"; throws Error(kUsage)

class Log {
 public:
  struct Options {
    LogLevel console_level = LogLevel::kWarn;  ///< what reaches stderr
    LogLevel file_level = LogLevel::kInfo;     ///< what reaches the file
    std::string prefix;                        ///< "[rank 3] ", before each stderr line
  };
  Log();  ///< warnings and errors to stderr
  explicit Log(Options options);
  ~Log();
  Log(Log&&) noexcept;
  Log& operator=(Log&&) noexcept;

  /// Also append to this file from now on, "2026-01-31 05:11:57,884 - INFO - message". Throws Error(kIo).
  void add_file(const std::filesystem::path& path);

  void write(LogLevel level, std::string_view message) noexcept;
  [[nodiscard]] bool has_files() const noexcept;
  /// For the files only: what one needs to find again, but would flood a screen.
  void write_to_files(LogLevel level, std::string_view message) noexcept;

  template <class... Args>
  void info(fmt::format_string<Args...> format, Args&&... args) {
    write(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
  }
  template <class... Args>
  void warn(fmt::format_string<Args...> format, Args&&... args) {
    write(LogLevel::kWarn, fmt::format(format, std::forward<Args>(args)...));
  }
  template <class... Args>
  void error(fmt::format_string<Args...> format, Args&&... args) {
    write(LogLevel::kError, fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace amaxscope
