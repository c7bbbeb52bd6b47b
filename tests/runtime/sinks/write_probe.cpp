#include "tests/runtime/sinks/write_probe.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

namespace {
std::atomic<std::size_t> call_count{0};
std::atomic<long> bytes_left{-1};
}  // namespace

namespace amaxscope::testing {

void WriteProbe::reset() {
  call_count = 0;
  bytes_left = -1;
}
std::size_t WriteProbe::calls() { return call_count; }
void WriteProbe::let_disk_be_full_after(long bytes) { bytes_left = bytes; }

}  // namespace amaxscope::testing

// Takes the place of the C library's function in this program.
extern "C" ssize_t write(int descriptor, const void* data, size_t size) {
  if (descriptor > STDERR_FILENO) {
    ++call_count;
    if (bytes_left >= 0) {
      if (bytes_left == 0) {
        errno = ENOSPC;
        return -1;
      }
      size = std::min(size, static_cast<size_t>(bytes_left.load()));
      bytes_left -= static_cast<long>(size);
    }
  }
  return syscall(SYS_write, descriptor, data, size);
}
