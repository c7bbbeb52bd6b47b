#include "runtime/config/structure_keys.hpp"

#include <array>

namespace amaxscope {

namespace {

constexpr std::array<StructureKey, 4> kSection = {{
    {"enabled", "bool", "required", "False: the section does nothing. It is checked all the same."},
    {"layers", "mapping", "required without `observe`", "Which GEMM layers the section is about."},
    {"observe", "string", "required without `layers`",
     "A pattern, found anywhere in the name of a tensor that is not an operand or result of a GEMM: "
     "parameters "
     "and their updates, the residual stream, logits, routers."},
    {"transformer_engine", "mapping", "optional",
     "The features, by name. Those of the base namespace stand in the section itself."},
}};

constexpr std::array<StructureKey, 4> kLayers = {{
    {"layer_name_regex_pattern", "string", "one of the four",
     "Layers in whose name Python's `re.search` finds the pattern: `layers\\.1` finds `layers.10` too. It "
     "decides "
     "alone, before `layer_types` and `layer_numbers`."},
    {"layer_types", "list of strings", "one of the four",
     "Layers whose name has one of the strings in it; `all`: every layer."},
    {"layer_numbers", "int, or list of ints and \"a-b\" ranges", "one of the four",
     "Layers with one of these numbers; a range has both its ends; `all`: every layer. The number is what "
     "the "
     "program registered, else the only one in the name. With `layer_types` both must match."},
    {"exact_layer_names", "list of strings", "one of the four",
     "Layers with one of these names. It decides alone, before all others."},
}};

constexpr std::array<StructureKey, 2> kGemmLists = {{
    {"gemms", "list of strings", "this or `gemms_struct`", "GEMMs: `fprop`, `dgrad`, `wgrad`."},
    {"gemms_struct", "list of mappings", "this or `gemms`",
     "An entry for each GEMM, with keys of its own that hold for that GEMM, and with `tensors` or "
     "`tensors_struct` "
     "of its own where the feature takes tensors."},
}};

constexpr std::array<StructureKey, 2> kTensorLists = {{
    {"tensors", "list of strings", "this or `tensors_struct`",
     "Tensors: the operands `activation`, `weight`, `gradient` and the results `output`, `dgrad`, `wgrad`."},
    {"tensors_struct", "list of mappings", "this or `tensors`",
     "An entry for each tensor, with keys of its own that hold for that tensor."},
}};

constexpr StructureKey kGemmEntry = {"gemm", "string", "required", "The GEMM that the entry is about."};
constexpr StructureKey kTensorEntry = {"tensor", "string", "required", "The tensor that the entry is about."};

}  // namespace

std::span<const StructureKey> section_keys() { return kSection; }
std::span<const StructureKey> layer_keys() { return kLayers; }
std::span<const StructureKey> gemm_list_keys() { return kGemmLists; }
std::span<const StructureKey> tensor_list_keys() { return kTensorLists; }
const StructureKey& gemm_entry_key() { return kGemmEntry; }
const StructureKey& tensor_entry_key() { return kTensorEntry; }

std::vector<std::string> names_of(std::span<const StructureKey> keys) {
  std::vector<std::string> names;
  for (const StructureKey& key : keys) names.emplace_back(key.name);
  return names;
}

}  // namespace amaxscope
