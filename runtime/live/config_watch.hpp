// Notices that a config file has been edited. One rank has one; used by its session's thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace amaxscope {

class ConfigWatch {
 public:
  /// text: the content that is in force.
  ConfigWatch(std::filesystem::path path, std::string text);

  struct News {
    bool readable = false;
    std::string text;  ///< the new content, or why the file cannot be read
  };
  /// Looks at the size and the time of the file. Each version is news once, when two looks in a row have
  /// found the same: an editor may be at work. A file that is as it was, or that has the content of the last
  /// news, is none.
  std::optional<News> look();

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  struct Stamp {
    bool present = false;
    std::uintmax_t size = 0;
    std::filesystem::file_time_type time = {};
    friend bool operator==(const Stamp&, const Stamp&) = default;
  };
  [[nodiscard]] Stamp stamp() const;

  std::filesystem::path path_;
  std::string text_;
  Stamp told_;  ///< of the version that was read last
  Stamp last_;  ///< of the last look
};

}  // namespace amaxscope
