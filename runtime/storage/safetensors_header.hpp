// The JSON header of a safetensors file. Internal to the storage folder; pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/storage/tensor_file.hpp"

namespace amaxscope {

struct SafetensorsEntry {
  StoredTensor tensor;  ///< bytes and dtype set
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;
};

/// Reads the header of a file with `data_bytes` behind it and checks everything that SafetensorsFile
/// promises. Throws Error(kInput), led by `source`.
SafetensorsHeader parse_safetensors_header(std::string_view json, std::uint64_t data_bytes,
                                           const std::string& source);

/// "F32"; types of the format only.
std::string_view safetensors_type(DType dtype) noexcept;

}  // namespace amaxscope
