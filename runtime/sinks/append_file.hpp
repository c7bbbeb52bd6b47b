// A file of whole lines that grows: what is put in reaches the system in one write(2) a flush, so that other
// readers and a crash see whole lines; a kill within that write may leave the last one without its end. What
// is written survives the process at once, and a power cut when the system has written its caches, within
// half a minute as systems are set up. Internal to the sinks; one thread.
#pragma once

#include <cstdint>
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
  enum class Tail {
    kLeaveOut,  ///< what comes after the last newline is no line
    kAsLine,    ///< it is one, as it will be once something is appended: it may lack nothing but its newline
  };
  /// Gives the existing lines and where in the file they begin, the last one first, until visit returns
  /// false.
  void visit_lines_backward(Tail tail,
                            const std::function<bool(std::string_view, std::uintmax_t)>& visit) const;
  /// Takes away what an existing file has from that byte on. Throws Error(kIo).
  void cut_from(std::uintmax_t byte);

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
