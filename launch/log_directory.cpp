#include "launch/log_directory.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>

#include "core/error.hpp"

namespace amaxscope::launch {

namespace fs = std::filesystem;

std::string default_log_directory() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  const std::string stem = fmt::format("amaxscope_logs/{:%Y%m%d-%H%M%S}", fmt::localtime(now));
  std::string directory = stem;
  for (int other = 2; fs::exists(directory); ++other) directory = fmt::format("{}-{}", stem, other);
  return directory;
}

void require_fresh_log_directory(const std::string& directory) {
  std::error_code ignored;
  AMAXSCOPE_CHECK(!fs::exists(fs::path(directory) / "run.json", ignored), ErrorCode::kInput,
                  "--log-dir {}: holds the logs of a run already; choose another directory", directory);
  fs::path existing = fs::absolute(directory);
  while (!fs::exists(existing, ignored) && existing.has_relative_path()) existing = existing.parent_path();
  AMAXSCOPE_CHECK(fs::is_directory(existing, ignored), ErrorCode::kInput,
                  "--log-dir {}: {} is not a directory", directory, existing.string());
  AMAXSCOPE_CHECK(access(existing.c_str(), W_OK | X_OK) == 0, ErrorCode::kInput,
                  "--log-dir {}: no permission to write in {}", directory, existing.string());
}

}  // namespace amaxscope::launch
