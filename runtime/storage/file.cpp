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
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path_, error);
  AMAXSCOPE_CHECK(status.type() != std::filesystem::file_type::not_found, ErrorCode::kInput,
                  "{}: there is no such file", path_.string());
  AMAXSCOPE_CHECK(status.type() != std::filesystem::file_type::directory, ErrorCode::kInput,
                  "{}: is a directory, not a file", path_.string());
  // A pipe would block at being opened.
  AMAXSCOPE_CHECK(status.type() == std::filesystem::file_type::regular, ErrorCode::kInput,
                  "{}: is not a regular file", path_.string());
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  AMAXSCOPE_CHECK(descriptor_ >= 0, ErrorCode::kIo, "{}: cannot be opened: {}", path_.string(),
                  reason_text(errno));
  struct stat about = {};
  if (::fstat(descriptor_, &about) != 0) {
    const int reason = errno;
    ::close(descriptor_);
    throw Error(ErrorCode::kIo, fmt::format("{}: cannot be read: {}", path_.string(), reason_text(reason)));
  }
  size_ = static_cast<std::uint64_t>(about.st_size);
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

std::string InputFile::read_text(std::uint64_t offset, std::size_t bytes) const {
  std::string text(bytes, '\0');
  read(offset, std::as_writable_bytes(std::span(text)));
  return text;
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
