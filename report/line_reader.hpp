// The lines of a file that may be growing, and may be anybody's: bounded memory whatever is in it. For
// report/ and launch/. One thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "runtime/storage/file.hpp"

namespace amaxscope::report {

class LineReader {
 public:
  static constexpr std::size_t kLongestLine = 4U << 20;  ///< bytes; of a longer one nothing is given
  /// After so many bytes without the end of a line the rest of the file is not looked at: a hole of a file
  /// may be larger than any disk.
  static constexpr std::uint64_t kMostWithoutEnd = 64U << 20;

  explicit LineReader(std::filesystem::path path) : path_(std::move(path)) {}

  /// Whether the file is open; tries it when it was not there before. Throws Error(kInput) for what is no
  /// regular file, Error(kIo).
  bool open();
  /// The next line that has an end. None: there is no further one for now. `whole` is false for a line that
  /// was too long; the text is empty then. Throws Error(kIo).
  std::optional<std::string> next(bool& whole);
  /// Whether there is something behind the last line that has an end.
  [[nodiscard]] bool has_rest() const noexcept { return at_ < buffer_.size() || too_long_; }
  void drop_rest() noexcept;
  /// Whether the reader ended for want of an end of a line.
  [[nodiscard]] bool gave_up() const noexcept { return gave_up_; }

 private:
  bool fill();

  std::filesystem::path path_;
  std::unique_ptr<InputFile> file_;
  std::uint64_t position_ = 0;  ///< of the next byte in the file
  std::string buffer_;
  std::size_t at_ = 0;             ///< of the next line in buffer_
  std::size_t searched_ = 0;       ///< no end of a line between at_ and here
  bool too_long_ = false;          ///< the line at hand, whose beginning was thrown away
  std::uint64_t thrown_away_ = 0;  ///< bytes of it
  bool gave_up_ = false;
};

}  // namespace amaxscope::report
