// A folder of its own for each test, and files made of bytes.
#pragma once

#include <gmock/gmock.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>

#include "core/error.hpp"
#include "core/tensor.hpp"

namespace amaxscope::testing {

class StorageTest : public ::testing::Test {
 protected:
  StorageTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "amaxscope_storage_XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary directory");
    folder_ = pattern;
  }
  ~StorageTest() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return folder_ / name;
  }
  [[nodiscard]] std::string read(const std::string& name) const {
    std::ifstream file(folder_ / name, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  [[nodiscard]] std::size_t files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }

  std::filesystem::path folder_;
};

/// The bytes of a number as they lie in memory.
template <class T>
std::string bytes_of(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

/// A whole file: length, header, data.
inline std::string safetensors_of(const std::string& header, const std::string& data) {
  return bytes_of<std::uint64_t>(header.size()) + header + data;
}

inline std::string view_bytes(const TensorView& view) {
  return {static_cast<const char*>(view.data()), view.bytes()};
}

/// The message of the Error that `action` raises, led by its kind: "input: ..."
template <class Action>
std::string error_of(Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    return std::string(to_string(error.code())) + ": " + error.what();
  }
  return "no error";
}

}  // namespace amaxscope::testing
