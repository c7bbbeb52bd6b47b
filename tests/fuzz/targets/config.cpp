// The debug YAML: any text is a config or an Error(kConfig).
#include "runtime/config/config.hpp"
#include "features/builtin.hpp"
#include "tests/fuzz/target.hpp"

namespace amaxscope::fuzz {

std::vector<std::string> seeds() {
  std::vector<std::string> seeds;
  for (const auto& entry : std::filesystem::directory_iterator(AMAXSCOPE_SOURCE_DIR "/examples")) {
    if (entry.path().extension() == ".yaml") seeds.push_back(bytes_of(entry.path()));
  }
  seeds.emplace_back("a: &a [x, *a]\nb: {<<: *a, ? [1, 2] : 3}\n--- !!python/object:os.system ls\n");
  seeds.emplace_back(
      "a: &a [1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b]\nd: "
      "[*c,*c,*c,*c,*c,*c]\n");
  seeds.emplace_back(
      "s:\n  enabled: True\n  layers:\n    layer_name_regex_pattern: '(a+)+$'\n  transformer_engine:\n    "
      "LogTensorStats:\n"
      "      enabled: True\n      tensors_struct:\n        - tensor: weight\n          stats: [max, "
      "'amax']\n          freq: 2\n"
      "          start_end_list: [[0, 3], [5, 9]]\n");
  return seeds;
}

void read(std::string_view bytes) {
  static const FeatureRegistry registry = builtin_features();
  may_refuse([&] {
    const Config config = load_config(bytes, "fuzz.yaml", registry);
    for (const ConfigSection& section : config.sections) {
      if (section.layers == nullptr) continue;
      may_refuse([&] { (void)section.layers->matches("decoder.layers.1.mlp.linear_fc1", 1); });
      may_refuse([&] { (void)section.layers->matches(std::string(10'000, 'a') + "!", std::nullopt); });
    }
  });
}

}  // namespace amaxscope::fuzz
