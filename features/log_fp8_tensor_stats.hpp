// LogFp8TensorStats: what FP8 quantization does to an operand, under the running recipe or another one.
//
// A statistic is [recipe_]stat[_columnwise]. Without a recipe it describes the codes that the GEMM gets. With
// the running recipe in front it does too; with another it answers "what if". The current-scaling what-if is
// for the whole tensor: when the tensor is sharded over tensor-parallel ranks its amax is reduced over them,
// whatever the amax_scope of the session, so every rank of the group inspects at the same place, one with an
// empty shard too.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/feature/registry.hpp"

namespace amaxscope {

/// A statistic's name taken apart.
struct Fp8StatName {
  std::optional<RecipeKind> recipe;  ///< none: the running one
  std::string prefix;                ///< as written, "fp8_current_scaling_" or empty
  std::string stat;                  ///< "mse"
  bool columnwise = false;
};
/// No value for a word that is none; `reason` then says what is wrong with one that is almost right.
std::optional<Fp8StatName> parse_fp8_stat(std::string_view word, std::string& reason);

class LogFp8TensorStats final : public Feature {
 public:
  explicit LogFp8TensorStats(FeatureConfig config) : Feature(std::move(config)) {}

  [[nodiscard]] bool alters_numerics() const override { return false; }
  /// Statistics that the tensor cannot have are skipped with a warning: results are not quantized, a layer in
  /// high precision has no running recipe, what-ifs other than current scaling are not there yet.
  void register_tensor(const InspectedTensor& tensor, Registration& registration) override;
  [[nodiscard]] Decision inspect_tensor_enabled(const InspectedTensor& tensor,
                                                std::int64_t iteration) const override;
  /// Where a plan kept both directions in high precision there are no running codes, and nothing is counted
  /// for them; nor without an original.
  void inspect_tensor(const InspectContext& context) override;

 private:
  struct Measure {
    const StatCell* cell = nullptr;
    bool of_codes = false;  ///< of the operand, when it has codes
    bool what_if = false;   ///< else of a cast under current scaling
  };
  std::unordered_map<const InspectedTensor*, std::vector<Measure>> measures_;
};

FeatureEntry log_fp8_tensor_stats_entry();

}  // namespace amaxscope
