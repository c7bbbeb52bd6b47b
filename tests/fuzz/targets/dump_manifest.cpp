// The manifest that an earlier run left in a dump folder: it may hold nothing up.
#include "runtime/storage/dump_folder.hpp"

#include "runtime/storage/safetensors.hpp"
#include "tests/fuzz/target.hpp"

namespace amaxscope::fuzz {

namespace {

void dump_beside(const std::filesystem::path& manifest, std::int64_t iteration) {
  DumpMetadata dump;
  dump.identity = {.layer = "fc1", .tensor = "activation", .iteration = iteration};
  dump.shape = "3,2";
  const Tensor values(DType::kF32, Shape{3, 2});
  const std::vector<NamedTensor> tensors = {{"high_precision", values.view()}};
  DumpFolder folder(manifest.parent_path(), {.who = "fuzz", .budget = 1 << 20, .budget_name = "max_bytes"},
                    [](const std::string&) {});
  folder.write(dump, tensors);
}

}  // namespace

std::vector<std::string> seeds() {
  const std::filesystem::path manifest = file_with("", "seed/manifest.jsonl");
  for (std::int64_t iteration = 0; iteration < 3; ++iteration) dump_beside(manifest, iteration);
  return {bytes_of(manifest), "", "\n\n", "{\"iteration\":1e999}\n", std::string(1 << 16, 'a')};
}

void read(std::string_view bytes) {
  const std::filesystem::path manifest = file_with(bytes, "input/manifest.jsonl");
  dump_beside(manifest, 1);
}

}  // namespace amaxscope::fuzz
