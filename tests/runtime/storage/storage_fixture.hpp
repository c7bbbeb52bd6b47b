// A folder of its own for each test, and files made of bytes.
#pragma once

#include <gmock/gmock.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "core/error.hpp"
#include "core/tensor.hpp"
#include "tests/support/temporary_folder.hpp"

namespace amaxscope::testing {

class StorageTest : public ::testing::Test {
 protected:
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

  const TemporaryFolder temporary_;
  std::filesystem::path folder_ = temporary_.path();
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
