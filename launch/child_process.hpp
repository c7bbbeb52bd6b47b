// Another program, run to its end.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace amaxscope::launch {

/// Runs the command without a shell, its output (both streams) in a file, without standard input. Returns its
/// exit status, 128 + N when a signal N ended it. Blocks. Throws Error(kUsage) when it cannot be started.
int run_to_file(const std::vector<std::string>& command, const std::filesystem::path& output);

}  // namespace amaxscope::launch
