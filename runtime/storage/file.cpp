#include "runtime/storage/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "core/error.hpp"

namespace amaxscope {

namespace {

constexpr std::size_t kGather = 1 << 20;
/// The system takes at most about 2 GiB at once.
constexpr std::size_t kMostAtOnce = 1 << 30;
constexpr int kNamesToTry = 1000;

std::string reason_text(int reason) { return std::generic_category().message(reason); }

}  // namespace

InputFile::InputFile(std::filesystem::path path) : path_(std::move(path)) {
  // A pipe would block at being opened without O_NONBLOCK, which regular files do not know.
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  AMAXSCOPE_CHECK(descriptor_ >= 0 || (errno != ENOENT && errno != ENOTDIR), ErrorCode::kInput,
                  "{}: there is no such file", path_.string());
  AMAXSCOPE_CHECK(descriptor_ >= 0 || errno != ENXIO, ErrorCode::kInput, "{}: is not a regular file",
                  path_.string());
  AMAXSCOPE_CHECK(descriptor_ >= 0, ErrorCode::kIo, "{}: cannot be opened: {}", path_.string(),
                  reason_text(errno));
  struct stat about = {};
  const int reason = ::fstat(descriptor_, &about) == 0 ? 0 : errno;
  if (reason == 0 && S_ISREG(about.st_mode)) {
    size_ = static_cast<std::uint64_t>(about.st_size);
    return;
  }
  ::close(descriptor_);
  AMAXSCOPE_CHECK(reason == 0, ErrorCode::kIo, "{}: cannot be read: {}", path_.string(), reason_text(reason));
  throw Error(ErrorCode::kInput,
              fmt::format("{}: {}", path_.string(),
                          S_ISDIR(about.st_mode) ? "is a directory, not a file" : "is not a regular file"));
}

InputFile::~InputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void InputFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const std::size_t bytes = std::min(out.size(), kMostAtOnce);
    const ssize_t got = ::pread(descriptor_, out.data(), bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    AMAXSCOPE_CHECK(got >= 0, ErrorCode::kIo, "{}: cannot be read at byte {}: {}", path_.string(), offset,
                    reason_text(errno));
    AMAXSCOPE_CHECK(got > 0, ErrorCode::kIo,
                    "{}: ends at byte {}, {} bytes before the end of what is read (it had {} bytes when it "
                    "was opened)",
                    path_.string(), offset, out.size(), size_);
    out = out.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
}

std::size_t InputFile::read_some(std::uint64_t offset, std::span<char> out) const {
  while (true) {
    const ssize_t got =
        ::pread(descriptor_, out.data(), std::min(out.size(), kMostAtOnce), static_cast<off_t>(offset));
    if (got >= 0) return static_cast<std::size_t>(got);
    AMAXSCOPE_CHECK(errno == EINTR, ErrorCode::kIo, "{}: cannot be read at byte {}: {}", path_.string(),
                    offset, reason_text(errno));
  }
}

std::string InputFile::read_text(std::uint64_t offset, std::size_t bytes) const {
  std::string text(bytes, '\0');
  read(offset, std::as_writable_bytes(std::span(text)));
  return text;
}

std::string read_bounded(const std::filesystem::path& path, std::uint64_t most_bytes) {
  const InputFile file(path);
  AMAXSCOPE_CHECK(file.size() <= most_bytes, ErrorCode::kInput, "{}: has {} bytes; at most {} are read",
                  path.string(), file.size(), most_bytes);
  return file.read_text(0, file.size());
}

OutputFile::OutputFile(std::filesystem::path path) : path_(std::move(path)) {
  // A name that an earlier, killed process of the same number may have left is passed over.
  for (int attempt = 0; descriptor_ < 0; ++attempt) {
    temporary_ = path_.parent_path() / fmt::format(".amaxscope-{}-{}.tmp", ::getpid(), attempt);
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (descriptor_ < 0 && (errno != EEXIST || attempt == kNamesToTry)) refuse(errno);
  }
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void OutputFile::refuse(int reason) const {
  throw Error(ErrorCode::kIo, fmt::format("{}: cannot be written: {}", path_.string(), reason_text(reason)));
}

void OutputFile::write(std::span<const std::byte> bytes) {
  if (pending_.size() + bytes.size() > kGather) flush();
  if (bytes.size() >= kGather) {
    write_through(bytes);
  } else if (!bytes.empty()) {
    pending_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
}

void OutputFile::flush() {
  write_through(std::as_bytes(std::span(pending_)));
  pending_.clear();
}

void OutputFile::write_through(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), std::min(bytes.size(), kMostAtOnce));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) refuse(written < 0 ? errno : ENOSPC);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void OutputFile::commit() {
  flush();
  const int descriptor = std::exchange(descriptor_, -1);
  if (::close(descriptor) != 0) refuse(errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) refuse(errno);
  temporary_.clear();
}

}  // namespace amaxscope
