// Files of bytes: one that is read at any place, one that appears whole or not at all.
// Thread safety: InputFile may be read by several threads at once; an OutputFile belongs to one. Both block
// on the disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace amaxscope {

class InputFile {
 public:
  /// Throws Error(kInput) when there is no regular file of that name, Error(kIo) when it cannot be opened.
  explicit InputFile(std::filesystem::path path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  /// In bytes, when it was opened.
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  /// Fills `out` with the bytes from `offset` on. Throws Error(kIo) when the file has become shorter.
  void read(std::uint64_t offset, std::span<std::byte> out) const;
  [[nodiscard]] std::string read_text(std::uint64_t offset, std::size_t bytes) const;
  /// As much as there is now, which may be more than size(): 0 at the end. Throws Error(kIo).
  [[nodiscard]] std::size_t read_some(std::uint64_t offset, std::span<char> out) const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

/// A whole file. Throws Error(kInput) when it is none or has more than most_bytes, Error(kIo).
std::string read_bounded(const std::filesystem::path& path, std::uint64_t most_bytes);

/// What a file outlives once it is committed.
enum class Durability {
  kProcess,   ///< the process, also kill -9; a power cut may lose it, or leave it empty
  kPowerCut,  ///< a power cut too: file and folder are on the disk when commit() returns, which waits for it
};

/// Written under another name in the same folder (temporary_file.hpp); commit() gives it its own. Without
/// commit() nothing stays; of a process that was killed one file does, until the next writes one of that
/// name.
class OutputFile {
 public:
  /// The folder must exist. Throws Error(kIo).
  explicit OutputFile(std::filesystem::path path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// Small pieces are gathered, so that each write of the system is worth its call. Throws Error(kIo).
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }
  /// Replaces a file of that name. Throws Error(kIo), after which nothing of this one is left (after a folder
  /// that could not be synced, the whole file).
  void commit(Durability durability = Durability::kProcess);

 private:
  void flush();
  void write_through(std::span<const std::byte> bytes);
  [[noreturn]] void refuse(int reason) const;

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int descriptor_ = -1;
  std::string pending_;
};

}  // namespace amaxscope
