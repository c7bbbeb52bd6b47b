#include "runtime/sinks/append_file.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>
#include <utility>

#include "core/append_descriptor.hpp"
#include "core/error.hpp"

namespace amaxscope {

namespace {

constexpr std::uintmax_t kReadBytes = 65536;
constexpr std::size_t kLongestLine = 4U << 20;  ///< that readers take

std::string reason() { return std::generic_category().message(errno); }

}  // namespace

void make_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  AMAXSCOPE_CHECK(!error, ErrorCode::kIo, "{}: the folder cannot be made: {}", folder.string(),
                  error.message());
}

AppendFile::AppendFile(std::filesystem::path path, Content content)
    : path_(std::move(path)), content_(content) {
  require_appendable(path_);
  if (content_ == Content::kBytes) return;
  std::error_code missing;
  const std::uintmax_t size = std::filesystem::file_size(path_, missing);
  if (missing || size == 0) return;
  std::ifstream file(path_, std::ios::binary);
  file.seekg(-1, std::ios::end);
  const int last = file.get();
  AMAXSCOPE_CHECK(file.good(), ErrorCode::kIo, "{}: cannot be read to go on from: {}", path_.string(),
                  reason());
  ends_in_line_ = last != '\n';
}

AppendFile::~AppendFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void AppendFile::visit_lines_backward(
    Tail tail, const std::function<bool(std::string_view, std::uintmax_t)>& visit) const {
  std::error_code missing;
  std::uintmax_t position = std::filesystem::file_size(path_, missing);
  if (missing) return;
  std::ifstream file(path_, std::ios::binary);
  std::string text;  // from `position` to the end of the last line not visited yet
  bool is_line = tail == Tail::kAsLine && ends_in_line_;  // what comes after the last newline of the file
  while (position > 0) {
    const std::uintmax_t bytes = std::min(kReadBytes, position);
    position -= bytes;
    std::string block(bytes, '\0');
    file.seekg(static_cast<std::streamoff>(position));
    file.read(block.data(), static_cast<std::streamsize>(bytes));
    AMAXSCOPE_CHECK(file.good(), ErrorCode::kIo, "{}: cannot be read to go on from: {}", path_.string(),
                    reason());
    text.insert(0, block);
    for (std::size_t end = text.rfind('\n'); end != std::string::npos; end = text.rfind('\n')) {
      if (is_line && !visit(std::string_view(text).substr(end + 1), position + end + 1)) return;
      is_line = true;
      text.resize(end);
    }
    AMAXSCOPE_CHECK(
        text.size() <= kLongestLine, ErrorCode::kIo,
        "{}: has a line of more than {} MiB, which is none of ours; move it away or choose another "
        "log dir",
        path_.string(), kLongestLine >> 20U);
  }
  if (is_line) visit(text, 0);
}

void AppendFile::cut_from(std::uintmax_t byte) {
  if (descriptor_ < 0) open();
  if (::ftruncate(descriptor_, static_cast<off_t>(byte)) != 0) {
    throw Error(ErrorCode::kIo, fmt::format("{}: cannot be cut to {} bytes to go on from: {}", path_.string(),
                                            byte, reason()));
  }
  ends_in_line_ = false;
}

void AppendFile::open() {
  make_folder(path_.parent_path());
  descriptor_ = open_to_append(path_);
}

void AppendFile::append(std::string_view lines) {
  if (lines.empty()) return;
  if (descriptor_ < 0) open();
  std::string ended;
  if (ends_in_line_) {
    ended = "\n";
    ended += lines;
    lines = ended;
  }
  const bool ended_in_line = ends_in_line_;
  const off_t whole = ::lseek(descriptor_, 0, SEEK_END);
  // The system takes a regular file's whole write at once unless the disk is full or a signal arrives.
  while (!lines.empty()) {
    const ssize_t written = ::write(descriptor_, lines.data(), lines.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      const std::string why = written < 0 ? reason() : std::generic_category().message(ENOSPC);
      if (whole >= 0 && ::ftruncate(descriptor_, whole) == 0) ends_in_line_ = ended_in_line;
      if (whole == 0) {  // an empty file would look like one that lost what it had
        ::close(std::exchange(descriptor_, -1));
        ::unlink(path_.c_str());
      }
      throw Error(ErrorCode::kIo, fmt::format("{}: cannot be written: {}", path_.string(), why));
    }
    const auto bytes = static_cast<std::size_t>(written);
    ends_in_line_ = content_ == Content::kLines && lines[bytes - 1] != '\n';
    lines.remove_prefix(bytes);
  }
}

}  // namespace amaxscope
