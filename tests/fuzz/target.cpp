#include "tests/fuzz/target.hpp"

#include <fstream>
#include <iterator>
#include <stdexcept>

#include "core/error.hpp"
#include "tests/support/temporary_folder.hpp"

namespace amaxscope::fuzz {

void may_refuse(const std::function<void()>& reader) {
  try {
    reader();
  } catch (const Error& error) {
    switch (error.code()) {
      case ErrorCode::kInput:
      case ErrorCode::kConfig:
      case ErrorCode::kTensor:
      case ErrorCode::kIo:
        return;
      default:
        throw;
    }
  }
}

std::filesystem::path file_with(std::string_view bytes, std::string_view name) {
  static const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / name;
  std::filesystem::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!file.flush()) throw std::runtime_error("cannot write " + path.string());
  return path;
}

std::string bytes_of(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

}  // namespace amaxscope::fuzz
