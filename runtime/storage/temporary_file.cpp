#include "runtime/storage/temporary_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

#include "runtime/config/config.hpp"

namespace amaxscope {

namespace {

constexpr int kNamesToTry = 1000;

/// Locks are told to other hosts on some shared file systems only: each host has names of its own.
std::string host() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

bool is_same_file(const struct stat& open_file, const std::filesystem::path& path) {
  struct stat named = {};
  return ::lstat(path.c_str(), &named) == 0 && named.st_dev == open_file.st_dev &&
         named.st_ino == open_file.st_ino;
}

/// Whether the lock is this process's and the file still has its name: between opening and locking, another
/// process may have removed it, or given it the name that it was written for.
bool take(int descriptor, const std::filesystem::path& path) {
  struct stat about = {};
  return ::flock(descriptor, LOCK_EX | LOCK_NB) == 0 && ::fstat(descriptor, &about) == 0 &&
         is_same_file(about, path);
}

void remove_if_left_behind(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) return;
  struct stat about = {};
  const bool own = ::fstat(descriptor, &about) == 0 && S_ISREG(about.st_mode) && about.st_uid == ::geteuid();
  if (own && take(descriptor, path)) ::unlink(path.c_str());
  ::close(descriptor);
}

}  // namespace

TemporaryFile make_temporary_file(const std::filesystem::path& target) {
  const std::string stem =
      fmt::format(".amaxscope-{}", text_digest(target.filename().string() + '\0' + host()));
  for (int number = 0; number < kNamesToTry; ++number) {
    const std::filesystem::path path = target.parent_path() / fmt::format("{}-{}.tmp", stem, number);
    for (const bool again : {false, true}) {
      const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
      if (descriptor >= 0) {
        const bool locked = ::flock(descriptor, LOCK_EX | LOCK_NB) == 0;
        const bool no_locks = !locked && errno != EWOULDBLOCK;
        struct stat about = {};
        if (no_locks || (locked && ::fstat(descriptor, &about) == 0 && is_same_file(about, path))) {
          return {path, descriptor};
        }
        ::close(descriptor);  // another process has taken it for one that was left behind
        continue;
      }
      if (errno != EEXIST) throw std::system_error(errno, std::generic_category());
      if (!again) remove_if_left_behind(path);
    }
  }
  throw std::system_error(EEXIST, std::generic_category());
}

}  // namespace amaxscope
