#include <fmt/format.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <system_error>

#include "core/error.hpp"
#include "runtime/config/config.hpp"
#include "runtime/config/yaml_text.hpp"

namespace amaxscope {

namespace {

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

[[noreturn]] void refuse(const std::filesystem::path& path, std::string_view why) {
  throw Error(ErrorCode::kConfig, fmt::format("{}: {}", path.string(), why));
}

std::string reason(int error) { return std::generic_category().message(error); }

}  // namespace

std::string read_config_file(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) refuse(path, "is a directory, not a config file");
  const std::unique_ptr<std::FILE, Close> file(std::fopen(path.c_str(), "rb"));
  if (file == nullptr) refuse(path, fmt::format("cannot open the config file: {}", reason(errno)));
  // Not by the size the file system tells: a pipe has none.
  std::string text;
  char block[1 << 16];
  while (const std::size_t count = std::fread(block, 1, sizeof block, file.get())) {
    text.append(block, count);
    if (text.size() > kMaxConfigBytes)
      refuse(path, fmt::format("the config file is over {} bytes (1 MiB)", kMaxConfigBytes));
  }
  if (std::ferror(file.get()) != 0)
    refuse(path, fmt::format("cannot read the config file: {}", reason(errno)));
  return text;
}

std::string text_digest(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325U;  // FNV-1a, 64 bits
  for (const char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3U;
  }
  return fmt::format("{:016x}", hash);
}

}  // namespace amaxscope
