// A library for LD_PRELOAD that ends its process, as kill -9 does, at the N-th call that changes the file
// system below one folder. Settings, all of the environment:
//   AMAXSCOPE_KILL_BELOW  the folder, absolute; without it nothing is counted
//   AMAXSCOPE_KILL_AT     N, from 1; missing: never
//   AMAXSCOPE_KILL_RANK   only in the process that Open MPI calls this rank; missing: in every process
//   AMAXSCOPE_KILL_PART   of a write: how much of it is done first, in thousandths (0 when missing: nothing)
//   AMAXSCOPE_KILL_TRACE  a file to which every counted call is appended: "N call path [to-path|bytes]"
// Counted are opening to make or cut, write, pwrite, writev, ftruncate, posix_fallocate, fsync, fdatasync,
// rename, unlink, rmdir and mkdir. Stores into mapped memory are none. Any thread may call; descriptors up to
// 4095 are known.
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

constexpr int kDescriptors = 4096;

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

class Killer {
 public:
  static Killer& instance() {
    static Killer* const killer = new Killer();  // never destroyed: files are written until the very end
    return *killer;
  }

  [[nodiscard]] bool watches(const char* path) const {
    if (below_.empty() || path == nullptr) return false;
    return std::strncmp(path, below_.c_str(), below_.size()) == 0 &&
           (path[below_.size()] == '/' || path[below_.size()] == '\0');
  }
  [[nodiscard]] bool watches(int descriptor) const {
    return descriptor >= 0 && descriptor < kDescriptors &&
           open_[static_cast<std::size_t>(descriptor)].load(std::memory_order_relaxed);
  }
  void note(int descriptor, bool watched) {
    if (descriptor >= 0 && descriptor < kDescriptors) {
      open_[static_cast<std::size_t>(descriptor)].store(watched, std::memory_order_relaxed);
    }
  }

  /// Counts a call; whether it is the one to end at.
  bool strikes(const char* call, const std::string& about) {
    const long number = count_.fetch_add(1) + 1;
    if (trace_ >= 0) {
      const std::string line = std::to_string(number) + " " + call + " " + about + "\n";
      static_cast<void>(syscall(SYS_write, trace_, line.data(), line.size()));
    }
    return number == at_;
  }
  bool strikes(const char* call, int descriptor, const std::string& about = {}) {
    std::array<char, 4096> path{};
    const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
    static_cast<void>(readlink(link.c_str(), path.data(), path.size() - 1));
    return strikes(call, path.data() + (about.empty() ? about : " " + about));
  }
  [[noreturn]] static void die() {
    while (true) kill(getpid(), SIGKILL);
  }
  [[nodiscard]] std::size_t part_of(std::size_t bytes) const { return bytes * part_ / 1000; }

 private:
  Killer() {
    const auto number = [](const char* name) {
      const char* text = std::getenv(name);
      return text == nullptr ? 0L : std::strtol(text, nullptr, 10);
    };
    const char* const rank = std::getenv("AMAXSCOPE_KILL_RANK");
    const char* const own = std::getenv("OMPI_COMM_WORLD_RANK");
    if (rank != nullptr && (own == nullptr || std::strcmp(rank, own) != 0)) return;
    if (const char* below = std::getenv("AMAXSCOPE_KILL_BELOW")) below_ = below;
    at_ = number("AMAXSCOPE_KILL_AT");
    part_ = static_cast<std::size_t>(number("AMAXSCOPE_KILL_PART"));
    if (const char* trace = std::getenv("AMAXSCOPE_KILL_TRACE")) {
      trace_ = static_cast<int>(
          syscall(SYS_openat, AT_FDCWD, trace, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    }
  }

  std::string below_;
  long at_ = 0;
  std::size_t part_ = 0;
  int trace_ = -1;
  std::atomic<long> count_ = 0;
  std::array<std::atomic<bool>, kDescriptors> open_{};
};

Killer& killer() { return Killer::instance(); }

int opened(int descriptor, const char* path, int flags) {
  killer().note(descriptor, (flags & O_ACCMODE) != O_RDONLY && killer().watches(path));
  if ((flags & O_DIRECTORY) != 0) killer().note(descriptor, killer().watches(path));  // it may be synced
  return descriptor;
}

void before_open(const char* path, int flags) {
  if ((flags & (O_CREAT | O_TRUNC)) != 0 && killer().watches(path) && killer().strikes("open", path)) {
    Killer::die();
  }
}

template <class Write>
ssize_t written(const char* call, int descriptor, std::size_t bytes, Write&& write) {
  if (killer().watches(descriptor) && killer().strikes(call, descriptor, std::to_string(bytes))) {
    if (const std::size_t part = killer().part_of(bytes); part > 0) static_cast<void>(write(part));
    Killer::die();
  }
  return write(bytes);
}

template <class Call>
int changed(const char* name, int descriptor, Call&& call) {
  if (killer().watches(descriptor) && killer().strikes(name, descriptor)) Killer::die();
  return call();
}

template <class Call>
int changed(const char* name, const char* path, Call&& call) {
  if (killer().watches(path) && killer().strikes(name, path)) Killer::die();
  return call();
}

mode_t mode_of(int flags, va_list arguments) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? static_cast<mode_t>(va_arg(arguments, int)) : mode_t{0};
}

}  // namespace

#pragma GCC diagnostic ignored "-Wmissing-declarations"

#define KILLER_OPEN(name)                                                                   \
  extern "C" int name(const char* path, int flags, ...) {                                   \
    va_list arguments;                                                                      \
    va_start(arguments, flags);                                                             \
    const mode_t mode = mode_of(flags, arguments);                                          \
    va_end(arguments);                                                                      \
    before_open(path, flags);                                                               \
    return opened(next<int(const char*, int, ...)>(#name)(path, flags, mode), path, flags); \
  }
KILLER_OPEN(open)
KILLER_OPEN(open64)

extern "C" {

ssize_t write(int descriptor, const void* data, std::size_t bytes) {
  return written("write", descriptor, bytes, [&](std::size_t part) {
    return next<ssize_t(int, const void*, std::size_t)>("write")(descriptor, data, part);
  });
}

ssize_t writev(int descriptor, const iovec* pieces, int count) {
  if (killer().watches(descriptor) && killer().strikes("writev", descriptor)) Killer::die();
  return next<ssize_t(int, const iovec*, int)>("writev")(descriptor, pieces, count);
}

int ftruncate(int descriptor, off_t size) {
  return changed("ftruncate", descriptor,
                 [&] { return next<int(int, off_t)>("ftruncate")(descriptor, size); });
}
int ftruncate64(int descriptor, off64_t size) {
  return changed("ftruncate", descriptor,
                 [&] { return next<int(int, off64_t)>("ftruncate64")(descriptor, size); });
}
int posix_fallocate(int descriptor, off_t offset, off_t size) {
  return changed("fallocate", descriptor,
                 [&] { return next<int(int, off_t, off_t)>("posix_fallocate")(descriptor, offset, size); });
}
int posix_fallocate64(int descriptor, off64_t offset, off64_t size) {
  return changed("fallocate", descriptor, [&] {
    return next<int(int, off64_t, off64_t)>("posix_fallocate64")(descriptor, offset, size);
  });
}
int fsync(int descriptor) {
  return changed("fsync", descriptor, [&] { return next<int(int)>("fsync")(descriptor); });
}
int fdatasync(int descriptor) {
  return changed("fdatasync", descriptor, [&] { return next<int(int)>("fdatasync")(descriptor); });
}
int rename(const char* from, const char* to) noexcept {
  if (killer().watches(to) && killer().strikes("rename", std::string(from) + " " + to)) Killer::die();
  return next<int(const char*, const char*)>("rename")(from, to);
}
int unlink(const char* path) noexcept {
  return changed("unlink", path, [&] { return next<int(const char*)>("unlink")(path); });
}
int rmdir(const char* path) noexcept {
  return changed("rmdir", path, [&] { return next<int(const char*)>("rmdir")(path); });
}
int mkdir(const char* path, mode_t mode) noexcept {
  return changed("mkdir", path, [&] { return next<int(const char*, mode_t)>("mkdir")(path, mode); });
}
int close(int descriptor) {
  killer().note(descriptor, false);
  return next<int(int)>("close")(descriptor);
}

}  // extern "C"
