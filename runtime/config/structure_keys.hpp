// The keys that do not belong to one feature: of a section, of `layers`, and of the lists in which features
// name GEMMs and tensors. The parser takes the words that it allows and suggests from here, `amaxscope
// explain
// --markdown` their documentation. Constant tables; any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace amaxscope {

struct StructureKey {
  std::string_view name;
  std::string_view type;     ///< as people call it: "bool", "mapping", ...
  std::string_view when;     ///< "required", "optional", or what is required
  std::string_view meaning;  ///< one or two sentences
};

/// Of a section, beside the features of the base namespace.
std::span<const StructureKey> section_keys();
/// Of `layers`.
std::span<const StructureKey> layer_keys();
/// Of a feature that takes GEMMs, and of one that takes tensors.
std::span<const StructureKey> gemm_list_keys();
std::span<const StructureKey> tensor_list_keys();
/// Of one entry of gemms_struct or tensors_struct: the key that names its GEMM or tensor.
const StructureKey& gemm_entry_key();
const StructureKey& tensor_entry_key();

std::vector<std::string> names_of(std::span<const StructureKey> keys);

}  // namespace amaxscope
