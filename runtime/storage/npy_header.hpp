// The header of a .npy file: a Python literal. Internal to the storage folder; pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace amaxscope {

struct NpyHeader {
  std::string descr;
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
};

/// {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }, keys in any order, each once.
/// Throws Error(kInput), led by `source`.
NpyHeader parse_npy_header(std::string_view text, const std::string& source);

}  // namespace amaxscope
