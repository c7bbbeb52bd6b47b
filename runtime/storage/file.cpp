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
#include "runtime/storage/temporary_file.hpp"

namespace amaxscope {

namespace {

constexpr std::size_t kGather = 1 << 20;
/// The system takes at most about 2 GiB at once.
constexpr std::size_t kMostAtOnce = 1 << 30;

std::string reason_text(int reason) { return std::generic_category().message(reason); }

/// Waits until the names in a folder are on the disk. 0, or why not; a file system that cannot be asked is
/// none.
int sync_folder(const std::filesystem::path& folder) {
  const int descriptor = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return errno;
  const int reason = ::fsync(descriptor) == 0 ? 0 : errno;
  ::close(descriptor);
  return reason == EINVAL || reason == ENOTSUP ? 0 : reason;
}

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
  try {
    TemporaryFile temporary = make_temporary_file(path_);
    descriptor_ = temporary.descriptor;
    temporary_ = std::move(temporary.path);
  } catch (const std::system_error& error) {
    refuse(error.code().value());
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

void OutputFile::commit(Durability durability) {
  flush();
  if (durability == Durability::kPowerCut && ::fsync(descriptor_) != 0) refuse(errno);
  // Some file systems tell of failed writes when a descriptor is closed. The lock, which tells other
  // processes that the file is in use, goes with the last descriptor: not before it has its name.
  const int copy = ::fcntl(descriptor_, F_DUPFD_CLOEXEC, 0);
  if (copy < 0 || ::close(copy) != 0) refuse(errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) refuse(errno);
  temporary_.clear();
  ::close(std::exchange(descriptor_, -1));
  if (durability == Durability::kProcess) return;
  if (const int reason = sync_folder(path_.parent_path()); reason != 0) refuse(reason);
}

}  // namespace amaxscope
