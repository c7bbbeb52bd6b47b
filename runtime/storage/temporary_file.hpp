// The file that a file is written into before it gets its name. A process that was killed leaves it behind;
// the next one that writes a file of that name on this host takes it away, so that at most one is ever left
// of each. Internal to storage/; blocks on the disk.
#pragma once

#include <filesystem>

namespace amaxscope {

struct TemporaryFile {
  std::filesystem::path path;
  /// Open for writing. While it is, it holds a lock (flock) where the file system has such: by this another
  /// process knows that the file is in use.
  int descriptor = -1;
};

/// A new, empty file beside `target`, ".amaxscope-<16 hex digits>-<n>.tmp": the digits are of the target's
/// name and the host. One of that name that no living process holds is removed first; one that is held, or
/// that belongs to another user, stays, and n counts on. Throws std::system_error.
TemporaryFile make_temporary_file(const std::filesystem::path& target);

}  // namespace amaxscope
