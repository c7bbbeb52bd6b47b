// The index of a checkpoint in several files.
#include "runtime/storage/checkpoint_index.hpp"

#include "runtime/storage/safetensors.hpp"
#include "tests/fuzz/targets/tensor_bytes.hpp"

namespace amaxscope::fuzz {

std::vector<std::string> seeds() {
  return {
      R"({"metadata":{"total_size":24},"weight_map":{"a":"part.safetensors"}})",
      R"({"weight_map":{"a":"../part.safetensors","b":"/etc/passwd","c":""}})",
      R"({"weight_map":{"a":"part.safetensors","a":"part.safetensors","b":1}})",
      "{\"weight_map\":" + std::string(200, '[') + std::string(200, ']') + "}",
  };
}

void read(std::string_view bytes) {
  const std::filesystem::path path = file_with(bytes, "model.safetensors.index.json");
  static const bool beside_it = [&] {
    const Tensor values(DType::kF32, Shape{3, 2});
    const std::vector<NamedTensor> tensors = {{"a", values.view()}};
    write_safetensors(path.parent_path() / "part.safetensors", tensors);
    return true;
  }();
  static_cast<void>(beside_it);
  may_refuse([&] { read_tensors(ShardedCheckpoint(path)); });
}

}  // namespace amaxscope::fuzz
