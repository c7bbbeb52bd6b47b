// The keys of one feature as they stand in the YAML: outer keys, and the GEMM and tensor lists with the keys
// of their entries. Every value is checked by its schema. Internal to config/.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/config/diagnostics.hpp"
#include "runtime/config/value.hpp"
#include "runtime/feature/schema.hpp"
#include "runtime/names.hpp"

namespace amaxscope {

using KeyValues = std::map<std::string, ConfigValue, std::less<>>;

struct TensorChoice {
  std::string name;
  std::optional<TensorKind> kind;  ///< none: a free name
  SourcePosition position;
  bool is_struct = false;  ///< an entry of tensors_struct, which can hold keys
  KeyValues keys;
};

struct GemmChoice {
  Gemm gemm = Gemm::kFprop;
  SourcePosition position;
  bool is_struct = false;
  KeyValues keys;
  bool has_tensors = false;  ///< a list of its own; else the feature's holds
  std::vector<TensorChoice> tensors;
};

struct FeatureLists {
  bool good = true;  ///< false: errors were reported
  KeyValues keys;
  std::set<std::string, std::less<>> bad_keys;       ///< given somewhere, with a value that was refused
  std::optional<std::vector<GemmChoice>> gemms;      ///< none: neither gemms nor gemms_struct
  std::optional<std::vector<TensorChoice>> tensors;  ///< none: neither tensors nor tensors_struct
};

/// `enabled` is left to the caller.
FeatureLists read_feature_lists(const FeatureSchema& schema, const ConfigValue::Mapping& mapping,
                                Diagnostics& diagnostics);

}  // namespace amaxscope
