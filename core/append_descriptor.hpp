// How files that grow are opened. A log directory may be shared: what lies under a name there need not be
// ours.
#pragma once

#include <filesystem>

namespace amaxscope {

/// Opens a file to append to, or makes it (mode 0644 less the umask). A symbolic link under that name is not
/// followed, and a pipe not waited for: both are refused. The folders above it may be links. The caller
/// closes the descriptor. Throws Error(kIo).
int open_to_append(const std::filesystem::path& path);

/// Refuses what open_to_append() would for what it is, before anything is read of it. Throws Error(kIo).
void require_appendable(const std::filesystem::path& path);

}  // namespace amaxscope
