// LogTensorStats: statistics of the high-precision tensor, in the transformer_engine namespace for the
// tensors of GEMM layers and observed tensors, in the base namespace for tensors under free names.
#pragma once

#include <unordered_map>
#include <vector>

#include "runtime/feature/registry.hpp"

namespace amaxscope {

class LogTensorStats final : public Feature {
 public:
  explicit LogTensorStats(FeatureConfig config) : Feature(std::move(config)) {}

  [[nodiscard]] bool alters_numerics() const override { return false; }
  /// Throws Error(kConfig) for a block size or dims that max_blockwise_dynamic_range does not have.
  void register_tensor(const InspectedTensor& tensor, Registration& registration) override;
  [[nodiscard]] Decision inspect_tensor_enabled(const InspectedTensor& tensor,
                                                std::int64_t iteration) const override;
  /// Without an original (a weight that exists in FP8 only) nothing is counted.
  void inspect_tensor(const InspectContext& context) override;

 private:
  struct Cells {
    const StatCell* moments = nullptr;  ///< null: none of its statistics is asked for
    std::vector<const StatCell*> ranges;
  };
  std::unordered_map<const InspectedTensor*, Cells> cells_;
};

FeatureEntry log_tensor_stats_entry();
FeatureEntry base_log_tensor_stats_entry();

}  // namespace amaxscope
