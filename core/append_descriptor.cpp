#include "core/append_descriptor.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "core/error.hpp"

namespace amaxscope {

namespace {

constexpr const char* kLink = "it is a symbolic link, which is not followed: it may be of somebody else";
constexpr const char* kNoFile = "it is not a regular file";

/// A device is taken as a file: /dev/null takes it all.
bool takes_bytes(const struct stat& about) { return S_ISREG(about.st_mode) || S_ISCHR(about.st_mode); }

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& why) {
  throw Error(ErrorCode::kIo, fmt::format("{}: cannot be opened: {}", path.string(), why));
}

}  // namespace

void require_appendable(const std::filesystem::path& path) {
  struct stat about = {};
  if (::lstat(path.c_str(), &about) != 0) return;  // opening it will say why
  if (S_ISLNK(about.st_mode)) refuse(path, kLink);
  if (!takes_bytes(about)) refuse(path, kNoFile);
}

int open_to_append(const std::filesystem::path& path) {
  // Without O_NONBLOCK a pipe that nobody reads would hold the program up; regular files do not know it.
  const int descriptor =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
  if (descriptor < 0) {
    const int reason = errno;
    if (reason == ELOOP) refuse(path, kLink);
    refuse(path, reason == ENXIO ? kNoFile : std::generic_category().message(reason));
  }
  struct stat about = {};
  const bool known = ::fstat(descriptor, &about) == 0;
  if (!known || !takes_bytes(about)) {
    ::close(descriptor);
    refuse(path, kNoFile);
  }
  return descriptor;
}

}  // namespace amaxscope
