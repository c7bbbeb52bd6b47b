// A .npy file.
#include "runtime/storage/npy.hpp"

#include "tests/fuzz/targets/tensor_bytes.hpp"

namespace amaxscope::fuzz {

namespace {

std::string version_one(const std::string& header, const std::string& data) {
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes += static_cast<char>(header.size() & 0xFF);
  bytes += static_cast<char>(header.size() >> 8 & 0xFF);
  return bytes + header + data;
}

}  // namespace

std::vector<std::string> seeds() {
  Tensor values(DType::kF32, Shape{3, 2});
  const std::filesystem::path path = file_with("", "seed.npy");
  write_npy(path, values.view());
  return {
      bytes_of(path),
      version_one("{'descr': '<f8', 'fortran_order': True, 'shape': (2, 3), }\n", std::string(48, 'a')),
      version_one("{'shape': (), 'descr': '|u1', 'fortran_order': False}\n", "a"),
      version_one("{'descr': '|V2', 'fortran_order': False, 'shape': (4,)}\n", "abcdefgh"),
      version_one("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}\n", "abcd"),
      version_one(
          "{'descr': '<i8', 'fortran_order': False, 'shape': (1152921504606846976, 1152921504606846976)}\n",
          ""),
  };
}

void read(std::string_view bytes) {
  const std::filesystem::path path = file_with(bytes, "input.npy");
  may_refuse([&] { read_tensors(NpyFile(path)); });
}

}  // namespace amaxscope::fuzz
