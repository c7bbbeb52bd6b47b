// A .safetensors file, what its metadata say of a dump, and its tensors.
#include "runtime/storage/safetensors.hpp"

#include "runtime/storage/dump_file.hpp"
#include "tests/fuzz/targets/tensor_bytes.hpp"

namespace amaxscope::fuzz {

namespace {

std::string with_length(const std::string& header, const std::string& data) {
  std::string bytes(8, '\0');
  for (std::size_t byte = 0; byte < 8; ++byte)
    bytes[byte] = static_cast<char>(header.size() >> (8 * byte) & 0xFF);
  return bytes + header + data;
}

}  // namespace

std::vector<std::string> seeds() {
  std::vector<std::string> seeds;
  Tensor values(DType::kF32, Shape{3, 2});
  Tensor codes(DType::kE4M3, Shape{5});
  DumpMetadata dump;
  dump.identity = {.layer = "decoder.layers.1.mlp.linear_fc1", .tensor = "activation", .iteration = 7};
  dump.tp_ranks = {0, 1};
  dump.shape = "3,2";
  const std::vector<NamedTensor> tensors = {{"high_precision", values.view()}, {"codes", codes.view()}};
  const std::filesystem::path path = file_with("", "seed.safetensors");
  write_safetensors(path, tensors, to_metadata(dump));
  seeds.push_back(bytes_of(path));
  seeds.push_back(with_length(
      R"({"a":{"dtype":"BF16","shape":[2,0],"data_offsets":[0,0]},"b":{"dtype":"F8_E4M3","shape":[],"data_offsets":[0,1]}})",
      "x"));
  seeds.push_back(
      with_length(R"({"a":{"dtype":"U8","shape":[1152921504606846976,16],"data_offsets":[0,1]}})", "x"));
  seeds.push_back(with_length(R"({"__metadata__":{"layer":"a","tensor":"b","iteration":"1"}})", ""));
  seeds.push_back(std::string("\0\0\0\0\0\0\0\x10", 8) + "{}");
  return seeds;
}

void read(std::string_view bytes) {
  const std::filesystem::path path = file_with(bytes, "input.safetensors");
  may_refuse([&] {
    const SafetensorsFile file(path);
    may_refuse([&] { (void)parse_dump_metadata(file.metadata(), 1, "input.safetensors"); });
    read_tensors(file);
  });
}

}  // namespace amaxscope::fuzz
