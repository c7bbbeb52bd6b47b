// Sees every write(2) this program makes to a file, and can let the disk be full.
#pragma once

#include <cstddef>

namespace amaxscope::testing {

struct WriteProbe {
  /// Calls since the last reset, and bytes after which the disk is full (-1: never).
  static void reset();
  static std::size_t calls();
  static void let_disk_be_full_after(long bytes);
};

}  // namespace amaxscope::testing
