// A file of whole lines that only ever grows: what is put in reaches the system in one write(2) a flush, so
// that other readers and a crash see whole lines. Internal to the sinks; one thread.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace amaxscope {

class AppendFile {
 public:
  enum class Content { kLines, kBytes };  ///< bytes: no newline is looked for or added anywhere

  /// Touches nothing but an existing file's last byte: one that was cut off in a line gets a newline before
  /// the first text that is appended. Throws Error(kIo) when an existing file cannot be read.
  explicit AppendFile(std::filesystem::path path, Content content = Content::kLines);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  /// Whether the existing file ended within a line.
  [[nodiscard]] bool ends_in_line() const noexcept { return ends_in_line_; }
  /// Gives the existing complete lines, the last one first, until visit returns false.
  void visit_lines_backward(const std::function<bool(std::string_view)>& visit) const;

  /// Appends lines (each with its newline) in one write; the first call makes the folders and the file.
  /// Throws Error(kIo); then nothing of the lines is in the file, and one that had nothing is gone (where
  /// even taking them back is refused, the next write starts a new line).
  void append(std::string_view lines);

 private:
  void open();

  std::filesystem::path path_;
  Content content_;
  int descriptor_ = -1;
  bool ends_in_line_ = false;
};

/// Makes the folder and those above it. Throws Error(kIo).
void make_folder(const std::filesystem::path& folder);

}  // namespace amaxscope
